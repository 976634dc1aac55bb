// collective.h: what the lanes of a warp do together. The last one to come does it for all.
#pragma once

#include "emulator/driver/block.h"

namespace emulator {

// The calling thread comes with its operands, and returns when all lanes of `mask` have come (those that have ended
// are not waited for) and `kind` has been performed.
void gather(const Collective& kind, unsigned mask, void* operands);

// A lane has ended; others may have waited for it.
void complete_without(Warp& warp);

}  // namespace emulator
