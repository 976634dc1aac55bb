// async_copies.cpp: see async_copies.h.
#include "emulator/driver/async_copies.h"

#include <cstring>

#include "emulator/driver/grid.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

void happen(const Copy& copy) {
    if (copy.valid)
        std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    else
        std::memset(copy.to, 0, static_cast<std::size_t>(copy.bytes));
}

}  // namespace

void copy_async(unsigned to, const void* from, int bytes, bool valid) {
    Lane& lane = grid().lane();
    unsigned char* place = shared_at(grid().block(), to, static_cast<unsigned>(bytes), static_cast<unsigned>(bytes));
    if (reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes) != 0)
        grid().fail("copies from an address that is no multiple of " + std::to_string(bytes));
    const Copy copy{place, from, bytes, valid, lane.copy_group};
    if (grid().seeded() && grid().random(2) == 0) return happen(copy);
    std::memset(place, 0xFF, static_cast<std::size_t>(bytes));
    lane.copies.push_back(copy);
}

void copy_async_commit() {
    ++grid().lane().copy_group;
}

void copy_async_wait(int pending) {
    Lane& lane = grid().lane();
    grid().progress();
    std::erase_if(lane.copies, [&](const Copy& copy) {
        if (copy.group + static_cast<unsigned>(pending) >= lane.copy_group) return false;
        happen(copy);
        return true;
    });
}

void happen_all(Lane& lane) {
    for (const Copy& copy : lane.copies) happen(copy);
    lane.copies.clear();
}

}  // namespace emulator
