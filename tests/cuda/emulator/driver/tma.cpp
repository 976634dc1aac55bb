// tma.cpp: see tma.h.
#include "emulator/driver/tma.h"

#include <cstdint>
#include <cstring>

#include "emulator/driver/barriers.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

MapFields fields_of(const Box& box) {
    MapFields map;
    std::memcpy(&map, box.map, sizeof map);
    if (static_cast<int>(map.dimensions) != box.dimensions)
        grid().fail("uses a tensor map of " + std::to_string(map.dimensions) + " dimensions as one of " +
                    std::to_string(box.dimensions));
    return map;
}

unsigned bytes_of(const MapFields& map) {
    unsigned bytes = map.element_bytes;
    for (unsigned n = 0; n < map.dimensions; ++n) bytes *= map.box[n];
    return bytes;
}

// Pieces of 16 bytes of a row change places with its address: 128-byte swizzle takes bits 7 to 9, the lesser ones
// fewer.
unsigned swizzled(unsigned address, unsigned swizzle_bytes) {
    return address ^ (address >> 3 & (swizzle_bytes - 1) & ~15u);
}

// Calls body(shared address, place in memory or null if it lies outside) for every element of the box.
template <class Body>
void each_element(const MapFields& map, const Box& box, unsigned address, Body body) {
    unsigned at[5] = {};
    const unsigned elements = bytes_of(map) / map.element_bytes;
    for (unsigned n = 0; n < elements; ++n, address += map.element_bytes) {
        unsigned char* place = map.data;
        for (unsigned d = 0; d < map.dimensions; ++d) {
            const long long coordinate = static_cast<long long>(box.at[d]) + at[d];
            if (coordinate < 0 || coordinate >= static_cast<long long>(map.shape[d])) {
                place = nullptr;
                break;
            }
            place += coordinate * static_cast<long long>(d == 0 ? map.element_bytes : map.strides[d - 1]);
        }
        body(map.swizzle_bytes != 0 ? swizzled(address, map.swizzle_bytes) : address, place);
        for (unsigned d = 0; d < map.dimensions && ++at[d] == map.box[d]; ++d) at[d] = 0;
    }
}

// The copy happens now or later.
template <class Happen>
void start_load(unsigned to, unsigned bytes, unsigned barrier, Happen happen) {
    grid().progress();
    Block& block = grid().block();
    shared_at(block, barrier, 8, 8);
    std::memset(shared_at(block, to, bytes, 16), 0xFF, bytes);
    const auto complete = [&block, bytes, barrier, happen] {
        happen(block);
        mbarrier_complete(block, barrier, bytes);
    };
    if (grid().seeded() && grid().random(4) == 0)
        complete();
    else
        block.copies.push_back(complete);
    grid().pause();
}

void store_now(const Block& block, const PendingStore& store) {
    Box box = store.box;
    box.map = store.map;
    const MapFields map = fields_of(box);
    each_element(map, box, store.from, [&](unsigned address, unsigned char* place) {
        if (place != nullptr) std::memcpy(place, shared_at(block, address, map.element_bytes, 1), map.element_bytes);
    });
}

std::uint64_t loads = 0;

}  // namespace

void tma_load(unsigned to, const Box& box, unsigned barrier) {
    ++loads;
    const MapFields map = fields_of(box);
    const unsigned alignment = map.swizzle_bytes == 0 ? 128 : 8 * map.swizzle_bytes;
    if (to % alignment != 0)
        grid().fail("loads a box to shared address " + std::to_string(to) + ", which is no multiple of " +
                    std::to_string(alignment));
    start_load(to, bytes_of(map), barrier, [map, box, to](const Block& block) {
        each_element(map, box, to, [&](unsigned address, const unsigned char* place) {
            unsigned char* own = shared_at(block, address, map.element_bytes, 1);
            if (place != nullptr)
                std::memcpy(own, place, map.element_bytes);
            else
                std::memset(own, 0, map.element_bytes);
        });
    });
}

void tma_load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
        grid().fail("loads bytes by TMA whose number or address is no multiple of 16");
    if (!is_allocated(from, bytes)) grid().fail("loads bytes by TMA from outside of any allocation");
    start_load(to, bytes, barrier,
               [to, from, bytes](const Block& block) { std::memcpy(shared_at(block, to, bytes, 16), from, bytes); });
}

void tma_store(unsigned from, const Box& box) {
    const MapFields map = fields_of(box);
    shared_at(grid().block(), from, bytes_of(map), map.swizzle_bytes == 0 ? 128 : 8 * map.swizzle_bytes);
    PendingStore store{from, box, {}};
    std::memcpy(store.map, box.map, sizeof store.map);
    grid().progress();
    if (grid().seeded() && grid().random(4) == 0) return store_now(grid().block(), store);
    grid().lane().stores.push_back(store);
}

void tma_commit() {
    grid().progress();
}

void tma_wait() {
    Lane& lane = grid().lane();
    grid().progress();
    for (const PendingStore& store : lane.stores) store_now(grid().block(), store);
    lane.stores.clear();
    grid().pause();
}

}  // namespace emulator

// For tests of what is loaded: how many boxes TMA has been asked for in all.
extern "C" __attribute__((visibility("default"))) std::uint64_t emulated_loads() {
    return emulator::loads;
}
