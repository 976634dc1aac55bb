// per_process.h: an object of which a process has one. It is made when it is first wanted, and never destroyed, since a
// call may come as late as a static destructor. A child made by fork() makes its own: at the fork another thread may
// have held a lock of the parent's object, and in the child nobody would release it. Making an object takes no lock for
// the same reason: where several threads make it at the same time, one of them wins and the others use its object.
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
    // Called once for each slot. From then on forget_all() resets it.
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
