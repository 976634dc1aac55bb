// together.h: work that several threads start at once, each on a CPU of its own, and the time until the last has ended.
#pragma once

#include <functional>

namespace flashtile::cli::bench {

// The shortest of several runs of `work(thread)`, in seconds.
double seconds_together(int threads, int repeats, const std::function<void(int)>& work);

}  // namespace flashtile::cli::bench
