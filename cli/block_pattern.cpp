// block_pattern.cpp: see block_pattern.h.
#include "block_pattern.h"

#include <algorithm>
#include <random>

namespace flashtile::cli {

BlockPattern::BlockPattern(std::int64_t seqlen, double share)
    : blocks((seqlen + rows - 1) / rows), seen(static_cast<std::size_t>(blocks * blocks)), indices(seen.size()) {
    std::mt19937 random(7);
    const auto kept = std::max<std::int64_t>(1, static_cast<std::int64_t>(share * static_cast<double>(blocks)));
    counts.assign(static_cast<std::size_t>(blocks), static_cast<std::int32_t>(kept));
    auto listed = indices.begin();
    for (auto row = seen.begin(); row != seen.end(); row += blocks, listed += blocks) {
        std::fill_n(row, kept, std::uint8_t{1});
        std::shuffle(row, row + blocks, random);
        auto entry = listed;
        for (std::int64_t n = 0; n < blocks; ++n)
            if (row[n] != 0) *entry++ = static_cast<std::int32_t>(n);
    }
}

flashtile::block_lists BlockPattern::lists(const void* of_counts, const void* of_indices,
                                           flashtile::device where) const {
    using flashtile::view;
    return {.block_q = rows,
            .block_k = rows,
            .counts = view(of_counts, flashtile::dtype::int32, {1, 1, blocks}, where),
            .indices = view(of_indices, flashtile::dtype::int32, {1, 1, blocks, blocks}, where)};
}

}  // namespace flashtile::cli
