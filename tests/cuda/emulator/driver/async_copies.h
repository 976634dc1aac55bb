// async_copies.h: cp.async. A copy happens when its thread waits for it, or earlier at random where there is a seed;
// until then NaN lies where it goes.
#pragma once

#include "emulator/driver/block.h"

namespace emulator {

void copy_async(unsigned to, const void* from, int bytes, bool valid);
void copy_async_commit();
void copy_async_wait(int pending);

// The thread ends.
void happen_all(Lane& lane);

}  // namespace emulator
