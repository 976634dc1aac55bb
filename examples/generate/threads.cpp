#include "threads.h"

namespace gemma {
namespace {

// A token passes through some hundred rounds, a few microseconds apart: a thread that slept at once would spend more
// time waking up than working. This many looks take some 50 microseconds.
constexpr int looks_before_sleep = 2000;

template <class T>
void wait_while_equal(const std::atomic<T>& value, T old) {
    for (int look = 0; look < looks_before_sleep; ++look) {
        if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    value.wait(old, std::memory_order_acquire);
}

}  // namespace

Threads::Threads(int count) {
    for (int n = 1; n < count; ++n) workers_.emplace_back([this] { work(); });
    executor_ = {.parallel_for = [](void* context, std::int64_t tasks, Call call,
                                    void* arg) { static_cast<Threads*>(context)->run(tasks, call, arg); },
                 .context = this,
                 .concurrency = count};
}

Threads::~Threads() {
    ended_ = true;
    ++round_;
    round_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void Threads::run(std::int64_t count, Call call, void* arg) {
    call_ = call;
    arg_ = arg;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    if (workers_.empty() || count <= 1) return take_tasks();
    working_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    take_tasks();
    while (const auto working = working_.load(std::memory_order_acquire)) wait_while_equal(working_, working);
}

void Threads::take_tasks() {
    for (std::int64_t n; (n = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(arg_, n);
}

void Threads::work() {
    for (std::uint32_t round = 0;; ++round) {
        wait_while_equal(round_, round);
        if (ended_) return;
        take_tasks();
        if (working_.fetch_sub(1, std::memory_order_release) == 1) working_.notify_one();
    }
}

}  // namespace gemma
