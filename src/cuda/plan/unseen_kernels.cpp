// unseen_kernels.cpp: see unseen_kernels.h.
#include "cuda/plan/unseen_kernels.h"

#include <atomic>

#include "core/environment.h"

namespace flashtile::gpu {
namespace {

enum Setting : int { unread, off, on };
constinit std::atomic<Setting> setting{unread};  // no lock, which another thread might hold when the process forks

}  // namespace

bool unseen_kernels_asked_for() {
    Setting now = setting.load(std::memory_order_relaxed);
    if (now == unread) {
        now = environment("FLASHTILE_UNSEEN_KERNELS") == "1" ? on : off;
        setting.store(now, std::memory_order_relaxed);
    }
    return now == on;
}

}  // namespace flashtile::gpu
