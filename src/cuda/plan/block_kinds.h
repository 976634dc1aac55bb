// block_kinds.h: a launch that makes a byte of each block that the user's lists speak of, before all that asks for it.
#pragma once

#include "cuda/plan/candidate.h"

namespace flashtile::gpu {

// Adds it, and the bytes' region, where the problem has lists.
void add_block_kinds(const Question& question, Plan& plan);

}  // namespace flashtile::gpu
