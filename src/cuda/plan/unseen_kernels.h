// unseen_kernels.h: kernels that no GPU has run yet are in every build but in no plan: so far only the emulated device
// (HACKING.md) has shown what they compute. The developer setting FLASHTILE_UNSEEN_KERNELS=1 lets plans have them, so
// that a GPU tests the very binary that users will get.
#pragma once

namespace flashtile::gpu {

enum class Kernels { seen, all };

// What the setting asks for. The environment is read once.
Kernels kernels_asked_for();

}  // namespace flashtile::gpu
