// block_pattern.h: blocks of a matrix of scores, drawn at random, for what is measured of block-sparse attention.
#pragma once

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <vector>

namespace flashtile::cli {

// Of each row of blocks as many are seen: `share` of them, and one at least. The same arguments draw the same blocks.
struct BlockPattern {
    static constexpr std::int64_t rows = 128;  // of a block: queries, and keys
    // Those that `bench paper` measures: a row of a sequence of 1024 has one block at least.
    static constexpr double shares[] = {0.125, 0.25, 0.5, 0.75, 1.0};

    BlockPattern(std::int64_t seqlen, double share);

    std::int64_t blocks;                        // in a row, and in a column
    std::vector<std::uint8_t> seen;             // (blocks, blocks), row-major
    std::vector<std::int32_t> counts, indices;  // of each row: how many are seen, and which: (blocks), (blocks, blocks)

    // As a call takes them: these, or copies of them on a device.
    flashtile::block_lists lists() const { return lists(counts.data(), indices.data(), flashtile::cpu); }
    flashtile::block_lists lists(const void* of_counts, const void* of_indices, flashtile::device where) const;
};

}  // namespace flashtile::cli
