// stress_seed.h: the developer setting FLASHTILE_KERNEL_STRESS, a number: kernels are made whose warps wait random
// times before they meet (cuda/kernels/ptx/stress.h), other ones for each number. Unset or 0: kernels as they are.
#pragma once

namespace flashtile::gpu {

// Throws INVALID_ARGUMENT for what is no such number.
unsigned stress_seed();

}  // namespace flashtile::gpu
