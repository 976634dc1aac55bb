// threads_test.cpp: many callers at once, other executors, forked children, and the process's settings.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "unit/run.h"
#include "unit/sanitizers.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::ProblemData;

Case problem(int variant) {
    Case c;
    c.type = kTypes[variant % 3];
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = 90 + variant;
    c.seqlen_k = 130;
    c.head_dim = c.head_dim_v = 32;
    c.causal = variant % 2 == 0;
    c.bias.present = variant % 3 == 1;
    c.deterministic = true;
    c.threads = 1 + variant % 4;
    c.poison_unseen = false;
    c.data_seed = static_cast<std::uint64_t>(variant) + 1;
    return c;
}

TEST(Threads, ManyCallersAtOnce) {
    constexpr int callers = 8;
    std::vector<Outputs> expected;
    for (int n = 0; n < callers; ++n) expected.push_back(run(problem(n), isa::automatic));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int n = 0; n < callers; ++n)
        threads.emplace_back([&, n] {
            for (int turn = 0; turn < 10; ++turn)
                if (!(run(problem(n), isa::automatic) == expected[static_cast<std::size_t>(n)])) ++wrong;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

struct Counts {
    std::atomic<std::int64_t> calls{0};
    std::atomic<std::int64_t> tasks{0};
};

// Runs the tasks one after the other, the last one first.
void reversed(void* context, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
    auto& counts = *static_cast<Counts*>(context);
    ++counts.calls;
    for (std::int64_t n = count; n-- > 0; ++counts.tasks) task(arg, n);
}

// Runs each task on a thread of its own.
void spread(void* context, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
    auto& counts = *static_cast<Counts*>(context);
    ++counts.calls;
    std::vector<std::thread> threads;
    for (std::int64_t n = 0; n < count; ++n, ++counts.tasks) threads.emplace_back(task, arg, n);
    for (std::thread& thread : threads) thread.join();
}

TEST(Threads, AnyExecutorGivesTheSameBits) {
    for (int variant = 0; variant < 6; ++variant) {
        ProblemData data(problem(variant));
        flashtile::options o = data.options(isa::automatic);
        const Outputs expected = run(data, o);
        for (const auto parallel_for : {reversed, spread}) {
            Counts counts;
            const flashtile_executor executor{parallel_for, &counts, 4};
            o.executor = &executor;
            o.threads = 4;
            EXPECT_TRUE(run(data, o) == expected) << "variant " << variant;
            EXPECT_GT(counts.calls, 0) << "the executor was not used";
        }
    }
}

// An executor is the host's code and throws what it likes, which may not be a std::exception.
TEST(Threads, WhatAnExecutorThrowsIsAnError) {
    ProblemData data(problem(0));
    flashtile::options o = data.options(isa::automatic);
    const Outputs expected = run(data, o);
    o.threads = 2;
    using ParallelFor = void (*)(void*, std::int64_t, void (*)(void*, std::int64_t), void*);
    const std::pair<ParallelFor, const char*> throwing[] = {
        {[](void*, std::int64_t, void (*)(void*, std::int64_t), void*) { throw 42; }, "no std::exception"},
        {[](void*, std::int64_t, void (*)(void*, std::int64_t), void*) { throw std::runtime_error("busy"); }, "busy"}};
    for (const auto& [parallel_for, reason] : throwing) {
        const flashtile_executor executor{parallel_for, nullptr, 2};
        o.executor = &executor;
        try {
            run(data, o);
            ADD_FAILURE() << "no error where the executor throws '" << reason << "'";
        } catch (const flashtile::error& error) {
            EXPECT_EQ(error.code(), flashtile::status::internal);
            EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
        }
    }
    o.executor = nullptr;
    EXPECT_TRUE(run(data, o) == expected) << "the calls after the failures";
}

// The C++ interface throws a std::bad_alloc that still has the library's message.
TEST(Threads, OutOfMemoryKeepsItsMessage) {
    ProblemData data(problem(0));
    flashtile::options o = data.options(isa::automatic);
    const flashtile_executor executor{
        [](void*, std::int64_t, void (*)(void*, std::int64_t), void*) { throw std::bad_alloc(); }, nullptr, 2};
    o.executor = &executor;
    o.threads = 2;
    try {
        run(data, o);
        ADD_FAILURE() << "no error where the executor has no memory";
    } catch (const std::bad_alloc& error) {
        EXPECT_STREQ(error.what(), "out of memory");
        EXPECT_NE(dynamic_cast<const flashtile::out_of_memory*>(&error), nullptr);
    }
}

// Runs another call on the calling thread before each task, as a task scheduler may, through itself once more.
struct Nesting {
    ProblemData smaller{problem(2)}, larger{[] {
        Case c = problem(4);
        c.seqlen_q = c.seqlen_k = 300;
        return c;
    }()};
    Outputs of_smaller = run(smaller, smaller.options(isa::automatic));
    Outputs of_larger = run(larger, larger.options(isa::automatic));
    int depth = 0;
    int calls = 0;

    static void parallel_for(void* context, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
        auto& self = *static_cast<Nesting*>(context);
        for (std::int64_t n = 0; n < count; ++n) {
            // Before the first task and between two, and deeper between two: before every one of them would multiply.
            if (self.depth < 2 && (n == count / 2 || (n == 0 && self.depth == 0))) self.call_between();
            task(arg, n);
        }
    }

    // By turns a call that needs less memory than the outer one and a call that needs more.
    void call_between() {
        ++depth;
        const flashtile_executor executor{parallel_for, this, 4};
        const auto& [data, expected] = ++calls % 2 == 0 ? std::tie(smaller, of_smaller) : std::tie(larger, of_larger);
        flashtile::options o = data.options(isa::automatic);
        o.executor = &executor;
        o.threads = 3;
        // The data's memory is shared by the calls of all depths, so only the innermost judges its results.
        const Outputs results = run(data, o);
        if (depth == 2) {
            EXPECT_TRUE(results == expected);
        }
        --depth;
    }
};

TEST(Threads, AnExecutorMayNestCalls) {
    for (int variant = 0; variant < 6; ++variant) {
        ProblemData data(problem(variant));
        flashtile::options o = data.options(isa::automatic);
        const Outputs expected = run(data, o);
        Nesting nesting;
        const flashtile_executor executor{Nesting::parallel_for, &nesting, 4};
        o.executor = &executor;
        o.threads = 4;
        EXPECT_TRUE(run(data, o) == expected) << "variant " << variant;
        EXPECT_GT(nesting.calls, 20);
    }
}

// Many threads must not spend many times the CPU time of one thread because they wait for each other.
TEST(Threads, MoreThreadsThanCpusCostLittleMore) {
    if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "the sanitizer's own work is most of the CPU time";
    Case c = problem(0);
    c.batch = 1;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = c.seqlen_k = 2048;
    ProblemData data(c);
    const auto cpu_time = [&](int threads) {
        flashtile::options o = data.options(isa::automatic);
        o.threads = threads;
        std::clock_t best =
            std::numeric_limits<std::clock_t>::max();  // whatever else runs on the machine adds to others
        for (int turn = 0; turn < 10; ++turn) {
            const std::clock_t start = std::clock();
            run(data, o);
            best = std::min(best, std::clock() - start);
        }
        return static_cast<double>(best);
    };
    const double usual = cpu_time(std::min(2u, std::thread::hardware_concurrency()));
    EXPECT_LT(cpu_time(64), 2 * usual);
}

TEST(Threads, TheProcessesExecutor) {
    Counts counts;
    const flashtile_executor executor{reversed, &counts, 3};
    ProblemData data(problem(2));
    flashtile::options o = data.options(isa::automatic);
    const Outputs expected = run(data, o);
    o.threads = 8;
    ASSERT_EQ(flashtile_set_executor(&executor), FLASHTILE_OK);
    EXPECT_TRUE(run(data, o) == expected);
    EXPECT_GT(counts.calls, 0);
    EXPECT_NE(std::string(last_run()).find("3 threads"), std::string::npos) << last_run();
    ASSERT_EQ(flashtile_set_executor(nullptr), FLASHTILE_OK);
    const std::int64_t before = counts.calls;
    run(data, o);
    EXPECT_EQ(counts.calls, before);
    const flashtile_executor none{nullptr, nullptr, 3};
    EXPECT_EQ(flashtile_set_executor(&none), FLASHTILE_INVALID_ARGUMENT);
    const flashtile_executor idle{reversed, &counts, 0};
    EXPECT_EQ(flashtile_set_executor(&idle), FLASHTILE_INVALID_ARGUMENT);
}

TEST(Threads, AForkedChildMayCall) {
    for (int variant = 0; variant < 3; ++variant) {  // a type each
        Case c = problem(variant);
        c.threads = 3;
        ProblemData data(c);
        const flashtile::options o = data.options(isa::automatic);
        const Outputs expected = run(data, o);  // the pool now has threads, which the child will not have
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(60);
            _exit(run(data, o) == expected && run(data, o) == expected ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status)) << "the child was killed by signal " << WTERMSIG(status);
        EXPECT_EQ(WEXITSTATUS(status), 0);
        EXPECT_TRUE(run(data, o) == expected);
    }
}

TEST(Threads, SettingTheCount) {
    const int before = get_threads();
    EXPECT_GE(before, 1);
    set_threads(5);
    EXPECT_EQ(get_threads(), 5);
    Case c = problem(0);
    c.threads = 0;
    run(c, isa::automatic);
    EXPECT_NE(std::string(last_run()).find("5 threads"), std::string::npos) << last_run();
    EXPECT_EQ(flashtile_set_threads(-1), FLASHTILE_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(flashtile_last_error(), "-1"), nullptr);
    EXPECT_EQ(get_threads(), 5);
    set_threads(0);
    EXPECT_EQ(get_threads(), before);
}

}  // namespace
}  // namespace flashtile::unit
