// warpgroup_product.h: wgmma. Each warp computes its 16 rows by itself, at once: what is read or overwritten too early
// is not seen here.
#pragma once

#include "emulator/device/runtime.h"

namespace emulator {

void wgmma(const WarpgroupProduct& product);
void wgmma_commit();
void wgmma_wait(int pending);

}  // namespace emulator
