// dependent_launch.h: a launch that begins while the one before it still runs (programmatic dependent launch, sm_90).
// Elsewhere, and where the launch is an ordinary one, both do nothing.
#pragma once

namespace flashtile::ptx {

// The next launch may begin once every thread block of this one has said so.
__device__ __forceinline__ void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the launch before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace flashtile::ptx
