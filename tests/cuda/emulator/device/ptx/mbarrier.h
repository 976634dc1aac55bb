// mbarrier.h: barriers in shared memory that count arrivals and bytes.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

inline void mbarrier_init(unsigned barrier, unsigned arrivals) {
    emulator_runtime->mbarrier_init(barrier, arrivals);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(unsigned barrier) {
    stress();
    emulator_runtime->mbarrier_arrive(barrier, 0);
}

inline void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
    stress();
    emulator_runtime->mbarrier_arrive(barrier, bytes);
}

inline void mbarrier_wait(unsigned barrier, unsigned parity) {
    stress();
    emulator_runtime->mbarrier_wait(barrier, parity);
}

}  // namespace flashtile::ptx
