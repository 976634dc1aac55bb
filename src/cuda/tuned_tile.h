// tuned_tile.h: a tile that `flashtile tune` found to be the best of several on a GPU, in place of the tile table's:
// what it holds for, its measurement, and the line of text as which it is kept and passed on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/plan/plan.h"
#include "cuda/tiles/tile.h"

namespace flashtile::gpu {

// What a tuned tile depends on beside the GPU and the library's version.
struct Subject {
    KernelConfig config;  // its tile as in KernelConfig{}, heads as wide as the kernel pads them; LSE does not count
    std::int64_t seqlen_q = 0, seqlen_k = 0;  // the powers of two that the lengths are nearest to: 3/4 to 3/2 of them
    bool full = false;                        // there are queries enough for every multiprocessor to have two blocks

    bool operator==(const Subject&) const = default;
};

struct TunedTile {
    std::string version;  // of the library
    std::string device;   // as tuned_device() has it
    Subject subject;
    Tile tile{};  // its sizes

    // Medians on the problem that was measured, whose numbers of heads these are.
    std::int64_t batch = 0, heads = 0, kv_heads = 0;
    std::int64_t nanoseconds = 0, table_nanoseconds = 0;

    std::string why;  // all of the measurement, in words
};

// A device's name without spaces, and its compute capability: "NVIDIA_H200/90".
std::string tuned_device(const DeviceFacts& device);

std::string to_text(const TunedTile& tuned);
// Nothing where the line is not what to_text() makes.
std::optional<TunedTile> parse_tuned_tile(std::string_view line);

// "forward_sm90 bf16 d=128 dv=128 causal, about 4096 x 4096": what it holds for, for people.
std::string describe(const Subject& subject);
// "128x80 tile, 12 warps, 3 stages"
std::string describe(const Tile& tile);

// The table's launch with the tile that was measured for such problems on this GPU, or as it is: where there is none,
// where the tile is none of its alternatives (any more), or where a row's bits may not depend on its batch's lengths.
Launch measured_or(const Launch& table, const Problem& problem, const DeviceFacts& device, TunedTiles tiles);

// A planned launch's tile as a tuned one, not measured yet, followed by those that `flashtile tune` measures beside it;
// nothing where there is no other.
std::vector<TunedTile> alternatives_of(const Launch& planned, const Problem& problem, const DeviceFacts& device);

}  // namespace flashtile::gpu
