// quantize_blocks.h: a quantisation's work: blocks of rows of a sequence's head, each of which may have a scale of its
// own. Part of the interface between the backend and the kernels of each instruction set.
#pragma once

#include <cstdint>

namespace flashtile::cpu {

// Rows [first, end) of head h of sequence b. In memory they start at row `at` of batch `outer`.
struct QuantizeBlock {
    std::int64_t b, h;
    std::int64_t first, end;
    std::int64_t outer, at;
};

constexpr std::int64_t kQuantizeRows = 64;  // of a block without a scale of its own

}  // namespace flashtile::cpu
