// block.h: a thread block at work: its threads, each on a stack of its own, and what they wait for.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/device/runtime.h"

namespace emulator {

struct Block;
struct Warp;

// A cp.async that has not happened.
struct Copy {
    unsigned char* to;
    const void* from;
    int bytes;
    bool valid;
    unsigned group;
};

// A wgmma that has not happened. It reads and writes registers, which are variables here, only then.
struct PendingProduct {
    WarpgroupProduct product;
    unsigned group;
};

// A TMA store that has not happened.
struct PendingStore {
    unsigned from;
    Box box;
    unsigned char map[128];
};

enum class Wait { none, start, warp, syncthreads, barrier, mbarrier, cluster, rest };

struct Lane {
    Thread facts;  // first: the kernel's emulator_thread points here
    void* stack = nullptr;
    Block* block = nullptr;
    Warp* warp = nullptr;
    unsigned number = 0;  // in the warp
    bool done = false;
    Wait wait = Wait::none;
    const char* at = "";               // the collective that it waits at
    unsigned barrier = 0, parity = 0;  // a named barrier's number, or an mbarrier's address and the parity waited for
    bool answer = false;               // of a named barrier
    bool at_cluster = false;           // it has arrived at the cluster's barrier, and has not waited there

    std::vector<Copy> copies;
    unsigned copy_group = 0;
    std::deque<PendingProduct> products;
    unsigned product_group = 0, products_done = 0;  // groups committed, and groups waited for
    std::vector<PendingStore> stores;
};

struct Gathering;

// What lanes of a warp do together, once all have come.
struct Collective {
    const char* name;
    void (*perform)(Gathering& lanes);
};

// Lanes of a warp that come together.
struct Gathering {
    const Collective* kind = nullptr;
    unsigned mask = 0, arrived = 0;
    void* operands[32];

    template <class Operands>
    Operands* of(unsigned lane) const {  // null for a lane that has ended
        return (arrived >> lane & 1) != 0 ? static_cast<Operands*>(operands[lane]) : nullptr;
    }
};

struct Warp {
    Block* block = nullptr;
    unsigned number = 0;
    Lane* lanes = nullptr;
    unsigned all = 0;  // lanes that it has
    unsigned exited = 0;
    unsigned ready = 0;                 // lanes that can go on
    unsigned resting = 0;               // lanes that wait for something outside the block
    std::vector<Gathering> gatherings;  // one for each mask that was used
};

struct NamedBarrier {
    unsigned arrived = 0, threads = 0;
    bool all = true;
    std::vector<Lane*> waiting;
};

// Thread blocks that run at the same time and reach each other's shared memory.
struct Cluster {
    std::vector<Block*> blocks;  // by rank; null: it has ended
    std::size_t arrived = 0;     // of the threads that run
    std::vector<Lane*> waiting;
};

struct Block {
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    std::uint64_t ready_warps = 0;  // those with lanes that can go on
    std::size_t running = 0;        // lanes that have not ended
    std::size_t slot = 0;           // which shared memory and stacks it has
    NamedBarrier barriers[17];      // the last one is __syncthreads
    std::vector<Lane*> at_mbarriers;
    std::deque<std::function<void()>> copies;  // TMA loads that have not happened
    std::shared_ptr<Cluster> cluster;
    unsigned rank = 0;
    unsigned copies_in = 0, copies_out = 0;  // between shared memories, that have not happened

    void make_ready(Lane& lane) {
        lane.wait = Wait::none;
        lane.warp->ready |= 1u << lane.number;
        ready_warps |= std::uint64_t{1} << lane.warp->number;
    }
};

// What the threads of a block are doing, in words.
std::string states(const Block& block);

}  // namespace emulator
