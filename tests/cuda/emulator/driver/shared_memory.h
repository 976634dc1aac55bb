// shared_memory.h: a block's shared memory by its addresses of 32 bits.
#pragma once

#include "emulator/driver/grid.h"

namespace emulator {

// Fails where the bytes do not lie in the block's memory, or the address is not aligned.
inline unsigned char* shared_at(const Block& block, unsigned address, unsigned bytes, unsigned alignment) {
    const Thread& any = block.lanes.front().facts;
    const unsigned offset = address - any.shared_first;
    if (offset > any.shared_bytes || bytes > any.shared_bytes - offset)
        grid().fail("uses shared addresses from " + std::to_string(address) + " on, " + std::to_string(bytes) +
                    " bytes, and its block has " + std::to_string(any.shared_first) + " to " +
                    std::to_string(any.shared_first + any.shared_bytes));
    if (address % alignment != 0)
        grid().fail("uses shared address " + std::to_string(address) + ", which is no multiple of " +
                    std::to_string(alignment));
    return any.shared + offset;
}

}  // namespace emulator
