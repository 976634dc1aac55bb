// grid.cpp: see grid.h.
#include "emulator/driver/grid.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "emulator/driver/async_copies.h"
#include "emulator/driver/barriers.h"
#include "emulator/driver/cluster.h"
#include "emulator/driver/collective.h"

namespace emulator {
namespace {

constexpr std::size_t kMostShared = 256 * 1024, kPage = 4096;
constexpr unsigned kSharedFirst = 1024;  // the system has what is before
constexpr std::size_t kMostThreads = 1024;
constexpr std::uint64_t kPatience = 2000;  // visits of a block without anything done, before it counts as a deadlock

std::uint64_t setting(const char* name, std::uint64_t standard) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : standard;
}

// The end of a memory of kMostShared bytes, behind which a page faults.
unsigned char* shared_memory() {
    void* fresh = ::mmap(nullptr, kMostShared + kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    unsigned char* end = static_cast<unsigned char*>(fresh) + kMostShared;
    ::mprotect(end, kPage, PROT_NONE);
    return end;
}

}  // namespace

Grid& grid() {
    static Grid instance;
    return instance;
}

std::string Grid::run(const Kernel& kernel, const LaunchShape& shape, void* const* parameters) {
    kernel_ = &kernel;
    shape_ = shape;
    parameters_ = parameters;
    failure_.clear();
    seed_ = setting("FLASHTILE_EMULATOR_SEED", 0);
    state_ = seed_ * 0x9E3779B97F4A7C15u;
    resident_ = std::max<std::size_t>(setting("FLASHTILE_EMULATOR_BLOCKS", 1), 1);
    const std::size_t most = std::max<std::size_t>(resident_, 64);
    const std::uint64_t total = std::uint64_t{shape.blocks.x} * shape.blocks.y * shape.blocks.z;

    std::vector<std::unique_ptr<Block>> active, spare;
    std::vector<std::size_t> free_slots;
    for (std::size_t n = most + kernel.cluster_blocks - 1; n-- > 0;) free_slots.push_back(n);
    std::uint64_t next = 0, fruitless = 0;
    std::size_t want = resident_, turn = 0;
    while (failure_.empty() && (next < total || !active.empty())) {
        while (active.size() < want && next < total) {
            const auto cluster = std::make_shared<Cluster>();
            for (unsigned rank = 0; rank < kernel.cluster_blocks; ++rank) {
                if (spare.empty()) spare.push_back(std::make_unique<Block>());
                active.push_back(std::move(spare.back()));
                spare.pop_back();
                Block& block = *active.back();
                block.slot = free_slots.back();
                free_slots.pop_back();
                block.cluster = cluster;
                block.rank = rank;
                cluster->blocks.push_back(&block);
                begin(block, next++);
            }
        }
        turn = seeded() ? random(static_cast<unsigned>(active.size())) : turn % active.size();
        const std::uint64_t before = progress_;
        if (run_until_stuck(*active[turn])) {
            free_slots.push_back(active[turn]->slot);
            spare.push_back(std::move(active[turn]));
            active.erase(active.begin() + static_cast<std::ptrdiff_t>(turn));
            fruitless = 0;
            want = resident_;
            continue;
        }
        fruitless = progress_ == before ? fruitless + 1 : 0;
        ++turn;
        if (fruitless > active.size() && active.size() < most && next < total) want = active.size() + 1;
        if (fruitless > kPatience * active.size() && failure_.empty()) {
            failure_ = "no thread can go on";
            for (const auto& block : active) failure_.append("\n").append(states(*block));
        }
    }
    current_ = nullptr;
    return failure_;
}

void Grid::begin(Block& block, std::uint64_t number) {
    const unsigned threads = shape_.threads.x * shape_.threads.y * shape_.threads.z;
    while (shared_.size() <= block.slot) shared_.push_back(shared_memory());
    const unsigned bytes = (shape_.shared_bytes + 15) / 16 * 16;
    unsigned char* memory = shared_[block.slot] - bytes;
    std::memset(memory, 0xFF, bytes);  // NaN
    const Dim blocks = shape_.blocks;
    const Dim index = {static_cast<unsigned>(number % blocks.x), static_cast<unsigned>(number / blocks.x % blocks.y),
                       static_cast<unsigned>(number / blocks.x / blocks.y)};
    block.lanes.resize(threads);
    block.warps.resize((threads + 31) / 32);
    block.running = threads;
    block.ready_warps = 0;
    for (NamedBarrier& barrier : block.barriers) barrier = {};
    block.at_mbarriers.clear();
    block.copies.clear();
    block.copies_in = block.copies_out = 0;
    for (std::size_t n = 0; n < block.warps.size(); ++n) {
        Warp& warp = block.warps[n];
        warp.block = &block;
        warp.number = static_cast<unsigned>(n);
        warp.lanes = &block.lanes[n * 32];
        warp.all = threads - n * 32 >= 32 ? ~0u : (1u << (threads - n * 32)) - 1;
        warp.exited = ~warp.all;
        warp.ready = warp.resting = 0;
        for (Gathering& gathering : warp.gatherings) gathering.arrived = 0;
    }
    for (unsigned n = 0; n < threads; ++n) {
        Lane& lane = block.lanes[n];
        const Dim own = {n % shape_.threads.x, n / shape_.threads.x % shape_.threads.y,
                         n / shape_.threads.x / shape_.threads.y};
        lane.facts = {own, index, shape_.threads, blocks, memory, kSharedFirst, bytes};
        lane.block = &block;
        lane.warp = &block.warps[n / 32];
        lane.number = n % 32;
        lane.done = lane.at_cluster = false;
        lane.copies.clear();
        lane.copy_group = 0;
        lane.products.clear();
        lane.product_group = lane.products_done = 0;
        lane.stores.clear();
        lane.stack = stacks_.start(block.slot * kMostThreads + n, &Grid::body, &lane);
        block.make_ready(lane);
        lane.wait = Wait::start;
    }
}

void Grid::body(void* argument) {
    Lane& lane = *static_cast<Lane*>(argument);
    lane.wait = Wait::none;
    grid().kernel_->call(grid().parameters_);
    grid().end_lane(lane);
}

void Grid::end_lane(Lane& lane) {
    if (!lane.stores.empty()) fail("ends while TMA may still read what it stores from shared memory");
    happen_all(lane);
    progress();
    lane.done = true;
    lane.warp->exited |= 1u << lane.number;
    --lane.block->running;
    complete_without(*lane.warp);
    complete_syncthreads(*lane.block);
    leave_cluster(lane);
    go_on();
    __builtin_unreachable();
}

bool Grid::run_until_stuck(Block& block) {
    while (failure_.empty()) {
        for (Warp& warp : block.warps)
            for (unsigned lanes = std::exchange(warp.resting, 0); lanes != 0; lanes &= lanes - 1)
                block.make_ready(warp.lanes[std::countr_zero(lanes)]);
        const std::uint64_t before = progress_;
        if (Lane* first = next(block)) {
            on_stack_ = true;
            enter(*first, &host_);
            on_stack_ = false;
        }
        if (!failure_.empty()) return false;
        if (block.running == 0) return true;
        if (block.ready_warps != 0) return false;  // it was another block's turn
        const bool rest = std::ranges::any_of(block.warps, [](const Warp& warp) { return warp.resting != 0; });
        if (progress_ != before && rest) continue;
        if (block.copies.empty()) return false;
        block.copies.front()();
        block.copies.pop_front();
    }
    return false;
}

Lane* Grid::next(Block& block) {
    if (block.ready_warps == 0) return nullptr;
    const auto pick = [&](std::uint64_t set) {
        unsigned skip = seeded() ? random(static_cast<unsigned>(std::popcount(set))) : 0;
        for (; skip > 0; --skip) set &= set - 1;
        return std::countr_zero(set);
    };
    const bool stay =
        current_ != nullptr && current_->block == &block && current_->warp->ready != 0 && (!seeded() || random(8) != 0);
    Warp& warp = stay ? *current_->warp : block.warps[static_cast<std::size_t>(pick(block.ready_warps))];
    const int lane = pick(warp.ready);
    warp.ready &= ~(1u << lane);
    if (warp.ready == 0) block.ready_warps &= ~(std::uint64_t{1} << warp.number);
    return &warp.lanes[lane];
}

void Grid::enter(Lane& lane, void** from) {
    current_ = &lane;
    *kernel_->current = &lane.facts;
    emulator_switch(from, lane.stack);
}

void Grid::go_on() {
    Lane& own = *current_;
    Lane* lane = next(*own.block);
    if (lane == &own) return;
    if (lane != nullptr)
        enter(*lane, &own.stack);
    else
        emulator_switch(&own.stack, host_);
}

void Grid::wait(Wait what) {
    current_->wait = what;
    go_on();
}

void Grid::pause() {
    if (!seeded()) return;
    Lane& own = *current_;
    own.block->make_ready(own);
    const bool alone = resident_ == 1 && kernel_->cluster_blocks == 1;
    if (!alone && random(64) == 0)
        emulator_switch(&own.stack, host_);
    else
        go_on();
}

void Grid::rest() {
    Lane& own = *current_;
    own.warp->resting |= 1u << own.number;
    wait(Wait::rest);
}

unsigned Grid::random(unsigned end) {
    if (!seeded()) return 0;
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>((state_ >> 33) % end);
}

void* Grid::leave(const std::string& why) {
    if (!on_stack_) return nullptr;
    const Thread& own = current_->facts;
    failure_ = "thread " + std::to_string(own.thread.x) + " of thread block " + std::to_string(own.block.x) + " " + why;
    return host_;
}

void Grid::fail(const std::string& what) {
    void* unused = nullptr;
    emulator_switch(&unused, leave(what));
    __builtin_unreachable();
}

}  // namespace emulator
