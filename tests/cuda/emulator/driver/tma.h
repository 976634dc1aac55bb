// tma.h: TMA. A load happens when no thread of its block can go on, or earlier at random where there is a seed; until
// then NaN lies where it goes. A store happens when its thread waits for it, or earlier at random.
#pragma once

#include "cuda/driver_types.h"
#include "emulator/device/runtime.h"

namespace emulator {

void tma_load(unsigned to, const Box& box, unsigned barrier);
void tma_load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier);
void tma_store(unsigned from, const Box& box);
void tma_commit();
void tma_wait();

// What a CUtensorMap of this driver holds.
struct MapFields {
    unsigned char* data;
    unsigned dimensions, element_bytes, swizzle_bytes;  // the last one is 0 for none
    unsigned long long shape[5], strides[4];            // from the innermost dimension out; strides in bytes
    unsigned box[5];
};
static_assert(sizeof(MapFields) <= sizeof(flashtile::gpu::CUtensorMap));

}  // namespace emulator
