// warpgroup_product.h: wgmma. Each warp computes its 16 rows by itself. A product happens when the warp waits for it,
// or earlier at random where there is a seed; until then NaN lies in its registers.
#pragma once

#include "emulator/device/runtime.h"

namespace emulator {

void wgmma(const WarpgroupProduct& product);
void wgmma_commit();
void wgmma_wait(int pending);

}  // namespace emulator
