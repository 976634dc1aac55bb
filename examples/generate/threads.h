// threads.h: the program's threads. Linear layers and flashtile share them: flashtile takes them as its executor, so
// that no second pool competes for the cores.
#pragma once

#include <flashtile/flashtile.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace gemma {

class Threads {
public:
    explicit Threads(int count);  // the calling thread is one of them
    ~Threads();
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    // Calls task(n) for every n in [0, count), from all threads, and returns when all have returned. Not from within a
    // task, and from one thread at a time.
    template <class Task>
    void run(std::int64_t count, const Task& task) {
        run(
            count, [](void* arg, std::int64_t n) { (*static_cast<const Task*>(arg))(n); },
            const_cast<void*>(static_cast<const void*>(&task)));
    }

    const flashtile_executor& executor() const { return executor_; }

private:
    using Call = void (*)(void* arg, std::int64_t n);

    void run(std::int64_t count, Call call, void* arg);
    void take_tasks();
    void work();

    // One round's tasks: written before `round_` counts up, and read by the workers after they saw it.
    Call call_ = nullptr;
    void* arg_ = nullptr;
    std::int64_t count_ = 0;
    std::atomic<std::int64_t> next_ = 0;

    std::atomic<std::uint32_t> round_ = 0;
    std::atomic<std::uint32_t> working_ = 0;  // workers that have not finished this round
    std::atomic<bool> ended_ = false;
    std::vector<std::thread> workers_;
    flashtile_executor executor_;
};

}  // namespace gemma
