// describe.h: parts of a plan in words, for people.
#pragma once

#include <string>

#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// One line: "forward_sm80 bf16 d=128 dv=128, 128x64 tile, 4 warps, ...".
std::string describe(const Launch& launch);

}  // namespace flashtile::gpu
