// warp_arrival.h: how a warp arrives at a barrier, for all that its lanes have read or written there (sm_90).
#pragma once

#include "cuda/kernels/parts/element.h"
#include "cuda/kernels/ptx/mbarrier.h"

namespace flashtile {

// One lane arrives for all. Under stress each does for itself: racecheck, which is run so, follows what a lane has read
// to that lane's arrival only, not through __syncwarp to another's.
constexpr int kArrivalsOfWarp = kStressSeed != 0 ? 32 : 1;

__device__ __forceinline__ void arrive_by_warp(unsigned barrier) {
    if constexpr (kArrivalsOfWarp == 1) __syncwarp();
    if (kArrivalsOfWarp > 1 || lane_id() == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace flashtile
