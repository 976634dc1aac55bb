// per_process.h: an object of which a process has one: made when it is first wanted, and never destroyed, since a call
// may come as late as a static destructor. A child made by fork() gets one of its own, because what another thread did
// to its parent's at that moment, a lock held or a file half read, nobody would ever finish there. For the same reason
// no lock is taken to make one: of threads that make it at the same time one wins, and the others use what it made.
#pragma once

#include <atomic>
#include <memory>

namespace flashtile {

class PerProcessSlot {
public:
    constexpr PerProcessSlot() = default;
    PerProcessSlot(const PerProcessSlot&) = delete;
    PerProcessSlot& operator=(const PerProcessSlot&) = delete;

    // In a child, right after the fork, when it has one thread.
    static void forget_all();

protected:
    // Once a slot: from here on forget_all() knows it.
    void remember();

    std::atomic<void*> object_{nullptr};

private:
    std::atomic<bool> remembered_{false};
    PerProcessSlot* next_ = nullptr;
};

// A variable of this type lies at namespace scope, constinit.
template <class T>
class PerProcess : public PerProcessSlot {
public:
    constexpr PerProcess() = default;

    // Throws what T's constructor throws; the next call tries again.
    T& get() {
        if (void* known = object_.load(std::memory_order_acquire)) return *static_cast<T*>(known);
        remember();
        auto fresh = std::make_unique<T>();
        void* known = nullptr;
        if (object_.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
        return *static_cast<T*>(known);
    }
};

}  // namespace flashtile
