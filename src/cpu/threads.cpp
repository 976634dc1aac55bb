// threads.cpp: the thread pool, and the settings of threads and executor. A worker spins for a short time before it
// sleeps, because waking it up can take longer than an attention call.
#include "cpu/threads.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "core/signals_blocked.h"
#include "cpu/turn.h"

namespace flashtile::cpu {
namespace {

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

constexpr int kSpins = 4000;  // 20 to 50 microseconds, which is longer than the gap between two passes of a call

std::int32_t available_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max<std::int32_t>(1, static_cast<std::int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
}

struct Cpus {
    std::int32_t count = available_cpus();
    std::atomic<std::int32_t> occupied{0};
};
constinit PerProcess<Cpus> cpus;

// While an Occupies lives, its thread counts as busy: it works on flashtile's tasks or spins until there are some.
class Occupies {
public:
    Occupies() { all_.occupied.fetch_add(1, std::memory_order_relaxed); }
    ~Occupies() { all_.occupied.fetch_sub(1, std::memory_order_relaxed); }
    Occupies(const Occupies&) = delete;
    Occupies& operator=(const Occupies&) = delete;

private:
    Cpus& all_ = cpus.get();
};

// True while there is a CPU for every busy thread. A spinning thread then takes no CPU from a working one.
bool may_spin() {
    const Cpus& all = cpus.get();
    return all.occupied.load(std::memory_order_relaxed) <= all.count;
}

// Returns when done() is true. Whoever makes it true then changes `word` and notifies its waiters.
template <class Word, class Done>
void wait_until(const Word& word, Done done) {
    for (int spin = 0;; ++spin) {
        const std::uint32_t seen = word.load(std::memory_order_acquire);
        if (done()) return;
        if (!may_spin())
            word.wait(seen, std::memory_order_acquire);
        else if (spin < kSpins)
            pause();
        else
            std::this_thread::yield();
    }
}

// Moves the calling thread to another CPU if it runs on `cpu` and may run elsewhere. The operating system often wakes a
// worker on the CPU of its caller, which is busy with the same job. Some Linux kernels leave both there for many calls.
void move_off(int cpu) {
    if (cpu < 0 || sched_getcpu() != cpu) return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
    cpu_set_t others = allowed;
    CPU_CLR(cpu, &others);
    sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(0, sizeof allowed, &allowed);  // the thread has moved by now, and stays where it is
}

class Pool {
public:
    // Runs runner(slot) for every slot in [0, slots), on this thread and on workers. Returns when all have returned.
    void run(std::int32_t slots, const std::function<void(std::int32_t)>& runner) {
        Job job{runner, slots, sched_getcpu()};
        {
            const std::lock_guard lock(mutex_);
            grow(slots - 1);
            jobs_.push_back(&job);
        }
        wakes_.fetch_add(1, std::memory_order_release);
        wakes_.notify_all();
        // This thread works too. It runs the slots that no worker has claimed yet.
        for (std::int32_t slot; (slot = claim(job)) >= 0;) runner(slot);
        {
            const std::lock_guard lock(mutex_);
            jobs_.remove(&job);
        }
        const Occupies spinning;
        wait_until(finished_, [&] { return job.running.load(std::memory_order_acquire) == 0; });
    }

private:
    struct Job {
        const std::function<void(std::int32_t)>& runner;
        std::int32_t slots;
        int callers_cpu;
        std::int32_t claimed = 0;              // guarded by the pool's mutex
        std::atomic<std::int32_t> running{0};  // workers inside runner
    };

    // The next free slot of a job, or -1.
    std::int32_t claim(Job& job) {
        const std::lock_guard lock(mutex_);
        return job.claimed < job.slots ? job.claimed++ : -1;
    }

    void grow(std::int32_t workers) {
        if (workers_ >= workers) return;
        const SignalsBlocked blocked;
        for (; workers_ < workers; ++workers_) {
            try {
                std::thread([this] { work(); }).detach();
            } catch (const std::system_error&) {
                return;  // the system gives no more threads: the caller runs the slots that remain
            }
        }
    }

    [[noreturn]] void work() {
        while (true) {
            const std::uint32_t seen = wakes_.load(std::memory_order_acquire);
            Job* job = nullptr;
            std::int32_t slot = -1;
            {
                const std::lock_guard lock(mutex_);
                for (Job* candidate : jobs_) {
                    if (candidate->claimed == candidate->slots) continue;
                    job = candidate;
                    slot = job->claimed++;
                    job->running.fetch_add(1, std::memory_order_relaxed);
                    break;
                }
            }
            if (job != nullptr) {
                move_off(job->callers_cpu);
                job->runner(slot);
                job->running.fetch_sub(1, std::memory_order_release);  // from here on the caller may destroy the job
                finished_.fetch_add(1, std::memory_order_release);
                finished_.notify_all();
                continue;
            }
            {
                const Occupies spinning;
                for (int spin = 0; spin < kSpins && may_spin() && wakes_.load(std::memory_order_relaxed) == seen;
                     ++spin)
                    pause();
            }
            wakes_.wait(seen, std::memory_order_acquire);
        }
    }

    // A lock that spins before it sleeps. It is held for some tens of instructions, and all workers ask for it at once
    // when a job comes. With a mutex the workers slept and were woken one after the other, which took longer than the
    // work of a short job.
    class Lock {
    public:
        void lock() {
            for (int spin = 0; held_.exchange(1, std::memory_order_acquire) != 0; ++spin)
                if (spin < kSpins / 10)
                    pause();
                else
                    held_.wait(1, std::memory_order_relaxed);
        }
        void unlock() {
            held_.store(0, std::memory_order_release);
            held_.notify_one();
        }

    private:
        std::atomic<std::int32_t> held_{0};
    };
    Lock mutex_;
    std::list<Job*> jobs_;
    std::int32_t workers_ = 0;
    std::atomic<std::uint32_t> wakes_{0};     // grows by 1 when a job comes
    std::atomic<std::uint32_t> finished_{0};  // grows by 1 when a worker returns from a runner
};

// The pool is never destroyed, since its threads may outlive static destructors. A forked child has none of these
// threads and starts a pool of its own.
constinit PerProcess<Pool> pool;

std::int32_t default_threads() {
    const std::string wish = environment("FLASHTILE_THREADS");
    if (wish.empty()) return available_cpus();
    std::int32_t threads = 0;
    const char* end = wish.data() + wish.size();
    const auto parsed = std::from_chars(wish.data(), end, threads);
    if (parsed.ec != std::errc() || parsed.ptr != end || threads < 1 || threads > FLASHTILE_MAX_THREADS)
        throw Error(FLASHTILE_INVALID_ARGUMENT, "FLASHTILE_THREADS is '" + wish + "', allowed is a number from 1 to " +
                                                    std::to_string(FLASHTILE_MAX_THREADS));
    return threads;
}

struct DefaultThreads {
    std::int32_t count = default_threads();
};
constinit PerProcess<DefaultThreads> standard;

constinit std::atomic<std::int32_t> process_threads{0};

// A list of every executor that was ever set, each once. None is ever removed, since a call may still run on an earlier
// one. The list has no lock: a child forked while a thread held the lock could never take it.
struct KnownExecutor {
    flashtile_executor executor;
    const KnownExecutor* next;
};
constinit std::atomic<const KnownExecutor*> known_executors{nullptr};
constinit std::atomic<const KnownExecutor*> process_executor{nullptr};  // null: the pool

// The executor that a call runs on; null means the pool.
const flashtile_executor* executor_for(const Execution& execution) {
    if (execution.executor != nullptr)
        return execution.executor->parallel_for != nullptr ? execution.executor : nullptr;
    const KnownExecutor* known = process_executor.load(std::memory_order_acquire);
    return known != nullptr ? &known->executor : nullptr;
}

}  // namespace

void set_threads(std::int32_t threads) {
    process_threads.store(threads);
}

std::int32_t get_threads() {
    const std::int32_t threads = process_threads.load();
    return threads > 0 ? threads : standard.get().count;
}

void set_executor(const flashtile_executor* executor) {
    if (executor == nullptr) return process_executor.store(nullptr);
    const auto same = [&](const flashtile_executor& other) {
        return other.parallel_for == executor->parallel_for && other.context == executor->context &&
               other.concurrency == executor->concurrency;
    };
    const KnownExecutor* known = known_executors.load(std::memory_order_acquire);
    while (known != nullptr && !same(known->executor)) known = known->next;
    if (known == nullptr) {
        auto* fresh = new KnownExecutor{*executor, known_executors.load()};
        while (!known_executors.compare_exchange_weak(fresh->next, fresh)) {
        }
        known = fresh;
    }
    process_executor.store(known, std::memory_order_release);
}

std::int32_t threads_for(const Execution& execution) {
    const std::int32_t wish = execution.threads > 0 ? execution.threads : get_threads();
    const flashtile_executor* executor = executor_for(execution);
    return executor != nullptr ? std::min(wish, std::max(1, executor->concurrency)) : wish;
}

void run_tasks(const Execution& execution, std::int32_t slots, std::int64_t tickets,
               const std::function<void(std::int64_t, std::int32_t)>& task) {
    std::atomic<std::int64_t> next{0};
    const std::function<void(std::int32_t)> runner = [&](std::int32_t slot) {
        const Occupies working;
        for (std::int64_t ticket; (ticket = next.fetch_add(1, std::memory_order_relaxed)) < tickets;)
            task(ticket, slot);
    };
    slots = static_cast<std::int32_t>(std::min<std::int64_t>(slots, tickets));
    if (slots <= 1) return runner(0);
    const flashtile_executor* executor = executor_for(execution);
    if (executor == nullptr) return pool.get().run(slots, runner);
    executor->parallel_for(
        executor->context, slots,
        [](void* arg, std::int64_t slot) {
            (*static_cast<const std::function<void(std::int32_t)>*>(arg))(static_cast<std::int32_t>(slot));
        },
        const_cast<std::function<void(std::int32_t)>*>(&runner));
}

void wait_for_turn(std::uint32_t* turn, std::uint32_t mine) {
    const std::atomic_ref word(*turn);
    wait_until(word, [&] { return word.load(std::memory_order_acquire) == mine; });
}

void pass_turn(std::uint32_t* turn, std::uint32_t next) {
    std::atomic_ref(*turn).store(next, std::memory_order_release);
    std::atomic_ref(*turn).notify_all();
}

}  // namespace flashtile::cpu
