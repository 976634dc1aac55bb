// unseen_kernels.h: kernels that no GPU has run yet are in every build but in no plan: so far only the emulated device
// (HACKING.md) has shown what they compute. The developer setting FLASHTILE_UNSEEN_KERNELS=1 lets plans have them, so
// that a GPU tests the very binary that users will get. Now these are Hopper's forward where it serves
// (share_schedule.h, with prefixes that sequences share, and what it does with caches) and latent_forward_sm90.
#pragma once

namespace flashtile::gpu {

// What the setting asks for. The environment is read once.
bool unseen_kernels_asked_for();

}  // namespace flashtile::gpu
