// tbb_test.cpp: a host program on oneTBB: its tasks call flashtile, whose own tasks run on the same scheduler. A thread
// that waits for its call's tasks may take up another call meanwhile, on top of the first.
#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "host/job.h"

namespace flashtile::host {
namespace {

// Tasks begin late, as on a busy scheduler, so that other threads take them and the caller has to wait.
void on_tbb(void*, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, count, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            task(arg, range.begin());
        },
        tbb::simple_partitioner());
}

TEST(OneTbb, TasksThatCall) {
    constexpr int kJobs = 900, kThreads = 8, kKinds = 5;
    std::vector<Job> expected;
    expected.reserve(kKinds);
    for (unsigned kind = 0; kind < kKinds; ++kind) {
        expected.emplace_back(kind + 1, 100 + 60 * kind);
        expected.back().run({.causal = true, .threads = 1});
    }
    const flashtile_executor executor{on_tbb, nullptr, kThreads};
    const tbb::global_control allowed(tbb::global_control::max_allowed_parallelism, kThreads);  // on fewer CPUs too
    std::atomic<int> wrong{0};
    tbb::task_arena(kThreads).execute([&] {
        tbb::parallel_for(
            tbb::blocked_range<int>(0, kJobs, 1),
            [&](const tbb::blocked_range<int>& range) {
                const int n = range.begin();
                const auto kind = static_cast<unsigned>(n) % kKinds;
                Job job(kind + 1, 100 + 60 * kind);
                if (!(job.run({.causal = true, .threads = kThreads, .executor = &executor}) == expected[kind])) ++wrong;
            },
            tbb::simple_partitioner());
    });
    EXPECT_EQ(wrong, 0) << "of " << kJobs;
}

}  // namespace
}  // namespace flashtile::host
