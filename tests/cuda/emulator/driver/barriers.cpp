// barriers.cpp: see barriers.h.
#include "emulator/driver/barriers.h"

#include <cstring>

#include "emulator/driver/grid.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

constexpr unsigned kSyncThreads = 16;  // where it lies among a block's barriers

void release(Block& block, NamedBarrier& barrier) {
    for (Lane* lane : barrier.waiting) {
        lane->answer = barrier.all;
        block.make_ready(*lane);
    }
    barrier.waiting.clear();
    barrier.arrived = 0;
    barrier.all = true;
}

NamedBarrier& come_to(unsigned number, unsigned threads) {
    grid().progress();
    if (number >= kSyncThreads) grid().fail("uses named barrier " + std::to_string(number) + ", and there are 16");
    if (threads == 0 || threads % 32 != 0)
        grid().fail("brings " + std::to_string(threads) + " threads to named barrier " + std::to_string(number) +
                    ", allowed are whole warps");
    NamedBarrier& barrier = grid().block().barriers[number];
    if (barrier.arrived != 0 && barrier.threads != threads)
        grid().fail("comes to named barrier " + std::to_string(number) + " for " + std::to_string(threads) +
                    " threads, where others wait for " + std::to_string(barrier.threads));
    barrier.threads = threads;
    ++barrier.arrived;
    return barrier;
}

// An mbarrier as it lies in shared memory.
struct MBarrier {
    unsigned long long phase : 1, pending : 20, arrivals : 20;
    long long bytes : 23;
};
static_assert(sizeof(MBarrier) == 8);

MBarrier* at(Block& block, unsigned address) {
    return reinterpret_cast<MBarrier*>(shared_at(block, address, sizeof(MBarrier), 8));
}

// Ends the phase if nothing is missing.
void complete(Block& block, unsigned address, MBarrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    barrier.phase ^= 1;
    barrier.pending = barrier.arrivals;
    std::erase_if(block.at_mbarriers, [&](Lane* lane) {
        if (lane->barrier != address || lane->parity == barrier.phase) return false;
        block.make_ready(*lane);
        return true;
    });
}

}  // namespace

bool sync_threads(bool x) {
    Lane& lane = grid().lane();
    Block& block = grid().block();
    NamedBarrier& barrier = block.barriers[kSyncThreads];
    grid().progress();
    ++barrier.arrived;
    barrier.all = barrier.all && x;
    if (barrier.arrived == block.running) {
        const bool all = barrier.all;
        release(block, barrier);
        grid().pause();
        return all;
    }
    barrier.waiting.push_back(&lane);
    grid().wait(Wait::syncthreads);
    return lane.answer;
}

void complete_syncthreads(Block& block) {
    NamedBarrier& barrier = block.barriers[kSyncThreads];
    if (barrier.arrived != 0 && barrier.arrived == block.running) release(block, barrier);
}

bool named_barrier(unsigned number, unsigned threads, bool x) {
    NamedBarrier& barrier = come_to(number, threads);
    Lane& lane = grid().lane();
    barrier.all = barrier.all && x;
    if (barrier.arrived == threads) {
        const bool all = barrier.all;
        release(grid().block(), barrier);
        grid().pause();
        return all;
    }
    barrier.waiting.push_back(&lane);
    lane.barrier = number;
    grid().wait(Wait::barrier);
    return lane.answer;
}

void named_barrier_arrive(unsigned number, unsigned threads) {
    NamedBarrier& barrier = come_to(number, threads);
    if (barrier.arrived == threads) release(grid().block(), barrier);
    grid().pause();
}

void mbarrier_init(unsigned address, unsigned arrivals) {
    *at(grid().block(), address) = {0, arrivals, arrivals, 0};
}

void mbarrier_arrive(unsigned address, unsigned bytes) {
    mbarrier_arrive_at(grid().block(), address, bytes);
}

void mbarrier_arrive_at(Block& block, unsigned address, unsigned bytes) {
    grid().progress();
    MBarrier& barrier = *at(block, address);
    if (barrier.pending == 0)
        grid().fail("arrives at the mbarrier at " + std::to_string(address) + " when all had arrived");
    barrier.bytes += bytes;
    --barrier.pending;
    complete(block, address, barrier);
    grid().pause();
}

void mbarrier_wait(unsigned address, unsigned parity) {
    grid().progress();
    Lane& lane = grid().lane();
    // The phase of parity p is complete once the barrier is in one of the other parity.
    if (at(grid().block(), address)->phase != parity) return grid().pause();
    lane.barrier = address;
    lane.parity = parity;
    grid().block().at_mbarriers.push_back(&lane);
    grid().wait(Wait::mbarrier);
}

void mbarrier_complete(Block& block, unsigned address, unsigned bytes) {
    MBarrier& barrier = *at(block, address);
    barrier.bytes -= bytes;
    complete(block, address, barrier);
}

}  // namespace emulator
