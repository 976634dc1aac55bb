// snapshots.h: a value that threads read at any time and that changes seldom. Whoever changes it publishes a new one,
// so that nobody waits for a lock, which another thread might hold when the process forks; the old ones stay, since a
// call may still be reading them.
#pragma once

#include <atomic>
#include <memory>

namespace flashtile {

template <class Value>
class Snapshots {
public:
    constexpr Snapshots() = default;

    // The present value, or first() where there is none yet. It stays valid and in its place.
    template <class First>
    const Value& get(First first) {
        if (const Node* known = current_.load(std::memory_order_acquire)) return known->value;
        return publish([&](const Value* before) { return before != nullptr ? *before : first(); });
    }

    // Publishes what `next` makes of the present value, or of null.
    template <class Next>
    const Value& publish(Next next) {
        const Node* before = current_.load(std::memory_order_acquire);
        while (true) {
            auto fresh = std::make_unique<Node>(Node{next(before != nullptr ? &before->value : nullptr), before});
            if (current_.compare_exchange_weak(before, fresh.get(), std::memory_order_acq_rel))
                return fresh.release()->value;
        }
    }

private:
    struct Node {
        Value value;
        const Node* before;
    };
    std::atomic<const Node*> current_{nullptr};
};

}  // namespace flashtile
