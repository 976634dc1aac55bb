// forward_launches.h: what Hopper's forward kernels have in common around their own tiles: on how many thread blocks
// they run, who gets which keys, the tensor maps and the combine.
#pragma once

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

inline constexpr std::int64_t kLongKeys = 4096;  // keys of which a tile is work enough for a thread block
inline constexpr int kConsumerRows = 64;         // a consumer stores its own rows of O
inline constexpr std::int64_t kFewQueries = 64;  // of a sequence, beside which keys may be shared out

// Tiles differ in their work, or their number is not known before the launch.
bool has_uneven_tiles(const KernelConfig& config);

// Adds the main kernel, of which grid and tensor maps are set here, and all that goes with it.
void add_forward_launches(const Question& question, Launch main, Plan& plan);

}  // namespace flashtile::gpu
