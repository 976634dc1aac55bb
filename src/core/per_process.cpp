// per_process.cpp: see per_process.h.
#include "core/per_process.h"

#include <pthread.h>

namespace flashtile {
namespace {

constinit std::atomic<PerProcessSlot*> slots{nullptr};

// When the library is loaded, and not at the first call, since another thread may fork during that.
const int registered = pthread_atfork(nullptr, nullptr, PerProcessSlot::forget_all);

}  // namespace

void PerProcessSlot::remember() {
    if (remembered_.exchange(true)) return;
    next_ = slots.load();
    while (!slots.compare_exchange_weak(next_, this)) {
    }
}

void PerProcessSlot::forget_all() {
    for (PerProcessSlot* slot = slots.load(); slot != nullptr; slot = slot->next_) slot->object_.store(nullptr);
}

}  // namespace flashtile
