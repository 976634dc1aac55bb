// together.cpp: see together.h.
#include "bench/together.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/pinned.h"

namespace flashtile::cli::bench {

double seconds_together(int threads, int repeats, const std::function<void(int)>& work) {
    double best = 1e30;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        std::chrono::steady_clock::time_point start;
        std::barrier all_ready(threads, [&]() noexcept { start = std::chrono::steady_clock::now(); });
        {
            std::vector<std::jthread> others;
            for (int thread = 1; thread < threads; ++thread)
                others.emplace_back([&, thread] {
                    const Pinned here(thread);
                    all_ready.arrive_and_wait();
                    work(thread);
                });
            const Pinned here(0);
            all_ready.arrive_and_wait();
            work(0);
        }
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

}  // namespace flashtile::cli::bench
