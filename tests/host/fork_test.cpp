// fork_test.cpp: children forked beside threads that are in the middle of calls, hundreds of them: none may find a lock
// held that nobody will release.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "host/job.h"

namespace flashtile::host {
namespace {

TEST(Fork, ChildrenBesideBusyThreads) {
    constexpr int kThreads = 4, kChildren = 400;
    constexpr unsigned kPatience = 20;  // seconds
    const options o{.causal = true, .threads = 2};
    const Job expected = Job(1, 8).run(o);
    std::atomic<bool> over{false};
    std::vector<std::thread> busy;
    busy.reserve(kThreads);
    for (int n = 0; n < kThreads; ++n)
        busy.emplace_back([&] {
            for (Job job(2, 8); !over;) job.run(o);
        });
    int failures = 0;
    for (int n = 0; n < kChildren && failures == 0; ++n) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(kPatience);
            _exit(Job(1, 8).run(o) == expected ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_FALSE(WIFSIGNALED(status)) << "child " << n << " was ended by signal " << WTERMSIG(status);
        EXPECT_TRUE(!WIFEXITED(status) || WEXITSTATUS(status) == 0) << "child " << n << " got other bits";
        failures += status != 0;
    }
    over = true;
    for (std::thread& thread : busy) thread.join();
}

}  // namespace
}  // namespace flashtile::host
