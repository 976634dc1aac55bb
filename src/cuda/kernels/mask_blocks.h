// mask_blocks.h: evaluates a mask function, and notes of which blocks of scores it shows something, and of which all
// (block_map.h). A function that does not ask for the head is evaluated once for all heads.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/functions.h"

namespace flashtile {

// Each warp has a block of the scores. Several thread blocks make a pair of words.
template <KernelConfig config>
__device__ __forceinline__ void mask_blocks(const KernelParams& p) {
    using Map = BlockMap<config>;
    constexpr int kShares = 32 / config.warps;  // of a word
    Index n = blockIdx.x / kShares;
    MapWords* const to = reinterpret_cast<MapWords*>(p.ws_block_map) + n;
    const int bit = static_cast<int>(blockIdx.x % kShares * config.warps + warp_id());
    const int block = (static_cast<int>(n % Map::words(p)) * 32 + bit) * Map::kBlockRows;
    n /= Map::words(p);
    const int line = static_cast<int>(n % Map::lines(p)) * Map::kLineRows;
    n /= Map::lines(p);
    const Sequence seq = Sequence::make<config>(p, n / p.block_map_heads, n % p.block_map_heads);
    const int i0 = Map::kOfKeys ? block : line, j0 = Map::kOfKeys ? line : block;
    const int i1 = smaller(i0 + config.Br, seq.seqlen_q), j1 = smaller(j0 + config.Bc, seq.seqlen_k);
    if (i0 >= i1 || j0 >= j1 || !seq.sees_any<config>(i0, i1, j0, j1)) return;
    bool any = false, all = true;
    if constexpr (config.block_lists) {  // which say enough
        const BlockKind kind = block_kinds_of(p, seq).of(i0, i1, j0, j1);
        any = kind != BlockKind::hidden;
        all = kind == BlockKind::full;
    } else {
        for (int i = i0; i < i1 && (all || !any); i += 16) {
            each_function_value<MaskFunction, config, 1, config.Bc / 8>(
                p, seq, {i, j0}, [&](int m, int t, int e, const auto& function, const auto& row, const auto& column) {
                    const bool inside = i + Place::row(m, e) < i1 && j0 + Place::column(t, e) < j1;
                    const bool shown = function.value(row, column);
                    any = any || (shown && inside);
                    all = all && (shown || !inside);
                });
            any = __any_sync(~0u, any);
            all = __all_sync(~0u, all);
        }
    }
    if (lane_id() != 0) return;
    if (any) atomicOr(&to->shown, 1u << bit);
    if (any && all) atomicOr(&to->whole, 1u << bit);
}

}  // namespace flashtile
