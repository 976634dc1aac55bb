// tuned_tile.h: a tuned tile, which `flashtile tune` found to be the fastest of several on a GPU. It replaces the tile
// of the tile table. Here are the problems that it is for, its measurement, and its form as a line of text, in which it
// is kept in a file and passed on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/plan/plan.h"
#include "cuda/tiles/tile.h"

namespace flashtile::gpu {

// The problems that a tuned tile is for. It also belongs to one GPU and one version of the library.
struct Subject {
    KernelConfig config;  // without a tile and without LSE; heads are as wide as the kernel pads them
    std::int64_t seqlen_q = 0, seqlen_k = 0;  // powers of two, each for lengths from 3/4 to 3/2 of it
    bool full = false;                        // the queries suffice for two blocks on every multiprocessor

    bool operator==(const Subject&) const = default;
};

struct TunedTile {
    std::string version;  // of the library
    std::string device;   // as tuned_device() has it
    Subject subject;
    Tile tile{};  // its sizes

    // The batch and heads of the problem that was measured, and its median times with this tile and the table's.
    std::int64_t batch = 0, heads = 0, kv_heads = 0;
    std::int64_t nanoseconds = 0, table_nanoseconds = 0;

    std::string why;  // the whole measurement, in words
};

// A device's name without spaces, and its compute capability: "NVIDIA_H200/90".
std::string tuned_device(const DeviceFacts& device);

std::string to_text(const TunedTile& tuned);
// Returns nothing if to_text() does not write such a line.
std::optional<TunedTile> parse_tuned_tile(std::string_view line);

// "forward_sm90 bf16 d=128 dv=128 causal, about 4096 x 4096": the problems that it is for, in words.
std::string describe(const Subject& subject);
// "128x80 tile, 12 warps, 3 stages"
std::string describe(const Tile& tile);

// The table's launch with the tile that was tuned for such problems on this GPU. The launch stays as it is if there is
// no such tile, if the tile is not among the alternatives of this version, or if a row's bits may not depend on the
// lengths of its batch.
Launch measured_or(const Launch& table, const Problem& problem, const DeviceFacts& device, TunedTiles tiles);

// The tiles that `flashtile tune` measures for a planned launch, the planned one first. They carry no measurement yet.
// The list is empty if there is only one.
std::vector<TunedTile> alternatives_of(const Launch& planned, const Problem& problem, const DeviceFacts& device);

}  // namespace flashtile::gpu
