// philox.cpp: the rounds as the paper's section 3.3 gives them: two 32x32 products whose halves are crossed over, and
// round keys that a Weyl sequence bumps.
#include "oracle/philox.h"

#include <cmath>

namespace flashtile::oracle {

Counter philox4x32(Counter counter, Key key, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        const std::uint64_t left = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t right = std::uint64_t{0xCD9E8D57} * counter[2];
        const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); };
        const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product & 0xFFFFFFFF); };
        counter = {high(right) ^ counter[1] ^ key[0], low(right), high(left) ^ counter[3] ^ key[1], low(left)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return counter;
}

std::uint32_t dropout_draw(std::uint64_t seed, std::uint64_t offset, std::int64_t b, std::int64_t h, std::int64_t i,
                           std::int64_t j) {
    const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
    const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
    // Rows lose bit 3, columns bits 0 and 3: those choose among the eight draws of the call.
    const std::int64_t row_group = i / 16 * 8 + i % 8;
    const std::int64_t column_group = j / 16 * 4 + j % 8 / 2;
    const Counter counter = {static_cast<std::uint32_t>(row_group), static_cast<std::uint32_t>(column_group),
                             static_cast<std::uint32_t>(b * 4096 + h), low(offset)};
    const Counter words = philox4x32(counter, {low(seed), high(seed) ^ high(offset)}, 7);
    const std::int64_t which = i / 8 % 2 + j / 8 % 2 * 2;
    const std::uint32_t word = words[static_cast<std::size_t>(which)];
    return j % 2 == 0 ? word % 65536 : word / 65536;
}

std::uint32_t dropout_threshold(double probability) {
    return static_cast<std::uint32_t>(std::lround(65536.0 * probability));
}

}  // namespace flashtile::oracle
