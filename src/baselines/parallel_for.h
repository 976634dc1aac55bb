// parallel_for.h: the plain split of independent work over threads that the baselines use.
#pragma once

#include <cstdint>
#include <functional>

namespace flashtile::baselines {

// How `threads` are shared between heads and the work inside a head: heads first, since they share nothing.
struct ThreadSplit {
    int over_heads;
    int within_head;
};
ThreadSplit split_threads(int threads, std::int64_t heads);

// Calls task(begin, end) on contiguous parts of [0, count), one part a thread.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t, std::int64_t)>& task);

}  // namespace flashtile::baselines
