// warpgroup_product.h: wgmma. Each warp computes its 16 rows by itself, as late as it may: when it waits for them. So
// what is overwritten too early, or read too early, shows as a wrong result.
#pragma once

#include "emulator/device/runtime.h"

namespace emulator {

void wgmma(const WarpgroupProduct& product);
void wgmma_commit();
void wgmma_wait(int pending);

}  // namespace emulator
