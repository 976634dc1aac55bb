// parallel_for.cpp: see parallel_for.h. Threads are started anew each time: beside an N x N matrix that costs nothing.
#include "baselines/parallel_for.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace flashtile::baselines {

ThreadSplit split_threads(int threads, std::int64_t heads) {
    const int over_heads = static_cast<int>(std::clamp<std::int64_t>(heads, 1, std::max(threads, 1)));
    return {over_heads, std::max(threads / over_heads, 1)};
}

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t, std::int64_t)>& task) {
    const std::int64_t parts = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
    const auto begin = [&](std::int64_t part) { return count * part / parts; };
    std::vector<std::jthread> others;
    for (std::int64_t part = 1; part < parts; ++part) others.emplace_back(task, begin(part), begin(part + 1));
    task(begin(0), begin(1));
}

}  // namespace flashtile::baselines
