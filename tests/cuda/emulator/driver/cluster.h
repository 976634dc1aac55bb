// cluster.h: what thread blocks of a cluster do together: a barrier of all their threads, arrivals at each other's
// mbarriers, and copies from one shared memory to the other's. A copy happens as a TMA load does, when no thread of the
// block that sends it can go on.
#pragma once

#include "emulator/driver/block.h"

namespace emulator {

void cluster_arrive();
void cluster_wait();
// The calling thread ends. Others may have waited for it.
void leave_cluster(Lane& lane);

void mbarrier_arrive_in(unsigned rank, unsigned barrier);
void copy_to(unsigned rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier);

}  // namespace emulator
