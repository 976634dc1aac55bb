// cluster.h: thread blocks of a cluster.
#pragma once

#include "cuda/kernels/ptx/stress.h"

namespace flashtile::ptx {

inline void cluster_arrive() {
    stress();
    emulator_runtime->cluster_arrive();
}
inline void cluster_wait() {
    stress();
    emulator_runtime->cluster_wait();
}

inline void mbarrier_arrive_in(unsigned rank, unsigned barrier) {
    stress();
    emulator_runtime->mbarrier_arrive_in(rank, barrier);
}

inline void copy_to(unsigned rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
    stress();
    emulator_runtime->copy_to(rank, to, from, bytes, barrier);
}

}  // namespace flashtile::ptx
