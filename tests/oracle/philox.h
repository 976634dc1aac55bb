// philox.h: the oracle's own Philox4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), and which probability flashtile drops by it, from the packing that docs/semantics.md fixes.
#pragma once

#include <array>
#include <cstdint>

namespace flashtile::oracle {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

Counter philox4x32(Counter counter, Key key, int rounds);

// The 16-bit draw of element (i, j) of head h of sequence b.
std::uint32_t dropout_draw(std::uint64_t seed, std::uint64_t offset, std::int64_t b, std::int64_t h, std::int64_t i,
                           std::int64_t j);

// A draw below this is dropped: round(65536 p).
std::uint32_t dropout_threshold(double probability);

}  // namespace flashtile::oracle
