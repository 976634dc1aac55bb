// tile_fit.cpp: see tile_fit.h.
#include "cuda/plan/tile_fit.h"

#include <algorithm>
#include <initializer_list>

#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

// How many of a block's warps lie below each other on results of `rows` and each of `columns`, so that they read the
// least of its factors; 0 where the warps cannot share it.
int warps_down(int rows, std::initializer_list<int> columns, int warps) {
    int best = 0, least = std::numeric_limits<int>::max();
    for (int down = 1; down <= warps; down *= 2) {
        const int across = warps / down;
        bool fits = rows % (down * 16) == 0;
        int read = 0;
        for (const int count : columns) {
            fits = fits && count % (across * 16) == 0;
            read += rows / down + count / across;
        }
        if (fits && read < least) best = down, least = read;
    }
    return best;
}

// Sets how warps share the results of a tile; false where they cannot.
bool place_warps(KernelConfig& c) {
    if (c.kernel == Kernel::forward_sm90) {
        if (c.scale_blocks && c.Bc % kScaleGroup != 0) return false;
        return c.group_rows == 1 || c.shares || output_parts(c) > 0;
    }
    if (c.kernel == Kernel::latent_forward_sm90) return true;
    if (c.kernel == Kernel::backward_sm90 || c.kernel == Kernel::backward_wide_sm90 ||
        c.kernel == Kernel::backward_pair_sm90) {
        c.warps_dq = c.Br == 64 ? 4 : 8;
        return true;
    }
    if (c.kernel == Kernel::forward_sm80 || c.kernel == Kernel::split_forward_sm80) return c.Br % (c.warps * 16) == 0;
    const int d = padded(c, c.head_dim), dv = padded(c, c.head_dim_v);
    c.warps_s = warps_down(c.Br, {c.Bc}, c.warps);
    c.warps_dkv = warps_down(c.Bc, {d, dv}, c.warps);
    c.warps_dq = warps_down(c.Br, {d}, c.warps);
    return c.warps_s != 0 && c.warps_dkv != 0 && c.warps_dq != 0;
}

}  // namespace

std::optional<Launch> with_tile(KernelConfig c, const Tile& tile, const DeviceFacts& device) {
    c.Br = tile.Br;
    c.Bc = tile.Bc;
    c.warps = tile.warps;
    c.stages = tile.stages;
    c.blocks_per_sm = tile.blocks_per_sm;
    if (!place_warps(c)) return std::nullopt;
    const int bytes = shared_bytes(c);
    if (bytes > device.shared_memory_per_block) return std::nullopt;
    // blocks that must share a multiprocessor must also share its memory
    if (tile.blocks_per_sm * (bytes + kReservedSharedMemory) > device.shared_memory_per_multiprocessor)
        return std::nullopt;
    return Launch{.config = c, .shared_memory = bytes, .why = tile.why};
}

std::optional<Launch> first_fit(const KernelConfig& c, std::span<const Tile> table, const DeviceFacts& device,
                                int most_queries) {
    const int widest = std::max(c.head_dim, c.head_dim_v);
    for (const Tile& tile : table) {
        if (tile.widest < widest || tile.Br > most_queries) continue;
        if (auto launch = with_tile(c, tile, device)) return launch;
    }
    return std::nullopt;
}

}  // namespace flashtile::gpu
