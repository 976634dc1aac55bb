// barriers.h: barriers of a thread block: __syncthreads, named ones, and those in shared memory that count arrivals and
// bytes (mbarrier).
#pragma once

#include "emulator/driver/block.h"

namespace emulator {

bool sync_threads(bool x);  // returns whether x is true for all threads
// A thread has ended; others may have waited for it.
void complete_syncthreads(Block& block);

bool named_barrier(unsigned number, unsigned threads, bool x);
void named_barrier_arrive(unsigned number, unsigned threads);

void mbarrier_init(unsigned barrier, unsigned arrivals);
// Arrives once, and expects so many bytes.
void mbarrier_arrive(unsigned barrier, unsigned bytes);
void mbarrier_arrive_at(Block& block, unsigned barrier, unsigned bytes);  // of another thread block
void mbarrier_wait(unsigned barrier, unsigned parity);
// So many bytes have come, to a barrier of a block that need not be the calling thread's.
void mbarrier_complete(Block& block, unsigned barrier, unsigned bytes);

}  // namespace emulator
