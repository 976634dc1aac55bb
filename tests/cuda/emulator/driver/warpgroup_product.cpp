// warpgroup_product.cpp: see warpgroup_product.h.
#include "emulator/driver/warpgroup_product.h"

#include "emulator/driver/grid.h"

namespace emulator {

void wgmma(const WarpgroupProduct&) {
    grid().fail("uses wgmma, which is not emulated yet");
}
void wgmma_commit() {}
void wgmma_wait(int) {}

}  // namespace emulator
