// cluster.cpp: see cluster.h.
#include "emulator/driver/cluster.h"

#include <cstring>

#include "emulator/driver/barriers.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

Block& block_of(unsigned rank) {
    const Cluster& cluster = *grid().block().cluster;
    if (rank >= cluster.blocks.size())
        grid().fail("asks for thread block " + std::to_string(rank) + " of a cluster of " +
                    std::to_string(cluster.blocks.size()));
    if (cluster.blocks[rank] == nullptr) grid().fail("reaches for the shared memory of a thread block that has ended");
    return *cluster.blocks[rank];
}

// Lets all go on once no thread is missing.
void complete(Cluster& cluster) {
    std::size_t running = 0;
    for (const Block* block : cluster.blocks) running += block != nullptr ? block->running : 0;
    if (cluster.arrived == 0 || cluster.arrived != running) return;
    cluster.arrived = 0;
    for (Block* block : cluster.blocks)
        if (block != nullptr)
            for (Lane& lane : block->lanes) lane.at_cluster = false;
    for (Lane* lane : cluster.waiting) lane->block->make_ready(*lane);
    cluster.waiting.clear();
}

}  // namespace

void cluster_arrive() {
    Lane& lane = grid().lane();
    grid().progress();
    if (lane.at_cluster) grid().fail("arrives at the cluster's barrier twice");
    lane.at_cluster = true;
    ++grid().block().cluster->arrived;
    complete(*grid().block().cluster);
    grid().pause();
}

void cluster_wait() {
    Lane& lane = grid().lane();
    grid().progress();
    if (!lane.at_cluster) return grid().pause();
    grid().block().cluster->waiting.push_back(&lane);
    grid().wait(Wait::cluster);
}

void leave_cluster(Lane& lane) {
    Block& block = *lane.block;
    if (lane.at_cluster) grid().fail("ends between arriving at the cluster's barrier and waiting there");
    if (block.running == 0) {
        if (block.copies_out != 0) grid().fail("is the last to end while copies still read its block's shared memory");
        if (block.copies_in != 0) grid().fail("is the last to end while copies come to its block's shared memory");
        block.cluster->blocks[block.rank] = nullptr;
    }
    complete(*block.cluster);
}

void mbarrier_arrive_in(unsigned rank, unsigned barrier) {
    mbarrier_arrive_at(block_of(rank), barrier, 0);
}

void copy_to(unsigned rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
    grid().progress();
    if (bytes % 16 != 0) grid().fail("copies bytes to another thread block whose number is no multiple of 16");
    Block &own = grid().block(), &other = block_of(rank);
    shared_at(own, from, bytes, 16);
    shared_at(other, barrier, 8, 8);
    std::memset(shared_at(other, to, bytes, 16), 0xFF, bytes);
    ++own.copies_out;
    ++other.copies_in;
    const auto happen = [=, &own, &other] {
        std::memcpy(shared_at(other, to, bytes, 16), shared_at(own, from, bytes, 16), bytes);
        --own.copies_out;
        --other.copies_in;
        grid().progress();
        mbarrier_complete(other, barrier, bytes);
    };
    if (grid().seeded() && grid().random(4) == 0)
        happen();
    else
        own.copies.push_back(happen);
    grid().pause();
}

}  // namespace emulator
