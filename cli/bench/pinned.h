// pinned.h: keeps the calling thread on one of the CPUs that it may use, for as long as the object lives. Two loops
// that are to find a machine's ceiling within milliseconds would otherwise often start on the same CPU.
#pragma once

#include <sched.h>

namespace flashtile::cli::bench {

class Pinned {
public:
    // The n-th of the CPUs, modulo their number.
    explicit Pinned(int n) {
        if (sched_getaffinity(0, sizeof before_, &before_) != 0 || CPU_COUNT(&before_) == 0) return;
        n %= CPU_COUNT(&before_);
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &before_) || n-- > 0) continue;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pinned_ = sched_setaffinity(0, sizeof one, &one) == 0;
            return;
        }
    }
    ~Pinned() {
        if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
    }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

private:
    cpu_set_t before_{};
    bool pinned_ = false;
};

}  // namespace flashtile::cli::bench
