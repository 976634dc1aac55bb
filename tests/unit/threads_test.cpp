// threads_test.cpp: many callers at once, other executors, forked children, and the process's settings.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "unit/run.h"

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

// One after the other, the last first.
void reversed(void* context, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
    auto& counts = *static_cast<Counts*>(context);
    ++counts.calls;
    for (std::int64_t n = count; n-- > 0; ++counts.tasks) task(arg, n);
}

// Each task on a thread of its own.
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
