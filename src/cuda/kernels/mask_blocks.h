// mask_blocks.h: evaluates a mask function, and notes of which blocks of scores it shows something, and of which all
// (block_map.h). A few lanes of a warp have a block, and evaluate the function on intervals of its queries and keys;
// where these do not tell, a warp evaluates it at every place of the block. A function that does not ask for the head
// is evaluated once for all heads.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/ptx/dependent_launch.h"

namespace flashtile {

// What is shown of a block.
enum class Shown : unsigned char { nothing, some, all, unknown };

// Queries [i0, i1) and keys [j0, j1) of a sequence, that of them exist.
template <KernelConfig config>
struct ScoreBlock {
    int i0, i1, j0, j1;

    __device__ __forceinline__ ScoreBlock(const Sequence& seq, int query, int key)
        : i0(query),
          i1(smaller(query + config.Br, seq.seqlen_q)),
          j0(key),
          j1(smaller(key + config.Bc, seq.seqlen_k)) {}

    // What the mask function may give in it. All lanes of a warp ask together.
    __device__ __forceinline__ intervals::Bools mask_interval_of(const KernelParams& p, const Sequence& seq) const {
        const Index origin_i = origin_i_of(p, seq.b), origin_j = origin_j_of(p, seq.b);
        return mask_interval<config>(arguments_of(p, seq), {origin_i + i0, origin_i + i1 - 1},
                                     {origin_j + j0, origin_j + j1 - 1});
    }
    __device__ __forceinline__ Shown on_intervals(const KernelParams& p, const Sequence& seq) const {
        const bool seen = i0 < i1 && j0 < j1 && seq.sees_any<config>(i0, i1, j0, j1);
        if constexpr (config.block_lists) {  // which say enough
            if (!seen) return Shown::nothing;
            const BlockKind kind = block_kinds_of(p, seq).of(i0, i1, j0, j1);
            return kind == BlockKind::hidden ? Shown::nothing : kind == BlockKind::full ? Shown::all : Shown::some;
        } else {
            const intervals::Bools may_be = mask_interval_of(p, seq);
            if (!seen || !may_be.high) return Shown::nothing;
            return may_be.low ? Shown::all : Shown::unknown;
        }
    }
    // The same by a warp, at every place, 16 queries at a time, until it is known to be mixed.
    __device__ __forceinline__ Shown at_places(const KernelParams& p, const Sequence& seq) const {
        bool any = false, all = true;
        for (int i = i0; i < i1 && (all || !any); i += 16) {
            each_function_value<MaskFunction, config, 1, config.Bc / 8>(
                p, seq, {i, j0},
                [&](int m, int t, int e, const auto& function, const auto& row, const auto& column,
                    const auto& diagonal) {
                    const bool inside = i + Place::row(m, e) < i1 && j0 + Place::column(t, e) < j1;
                    const bool value = function.value(row, column, diagonal);
                    any = any || (value && inside);
                    all = all && (value || !inside);
                });
            any = __any_sync(~0u, any);
            all = __all_sync(~0u, all);
        }
        return !any ? Shown::nothing : all ? Shown::all : Shown::some;
    }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// A thread block makes the words of 32 blocks in a line.
template <KernelConfig config>
__device__ __forceinline__ void mask_blocks(const KernelParams& p) {
    using Map = BlockMap<config>;
    ptx::let_next_launch_begin();
    Index map = blockIdx.x;
    MapWords& words = reinterpret_cast<MapWords*>(p.ws_block_map)[map];
    const int first = static_cast<int>(map % Map::words(p)) * 32;
    map /= Map::words(p);
    const int line = static_cast<int>(map % Map::lines(p)) * Map::kLineRows;
    map /= Map::lines(p);
    const Sequence seq = Sequence::make<config>(p, map / p.block_map_heads, map % p.block_map_heads);
    const auto block = [&](int n) {
        const int at = (first + n) * Map::kBlockRows;
        return ScoreBlock<config>(seq, Map::kOfKeys ? at : line, Map::kOfKeys ? line : at);
    };
    auto* const shown = reinterpret_cast<Shown*>(shared_memory);  // of each of the 32
    const int lane = static_cast<int>(lane_id()), warp = static_cast<int>(warp_id());
    static_assert(config.warps == intervals::kSharers, "every thread has a share of a block");
    const int number = static_cast<int>(threadIdx.x) / intervals::kSharers;
    const Shown found = block(number).on_intervals(p, seq);
    if (lane % intervals::kSharers == 0) shown[number] = found;
    __syncthreads();
    if constexpr (!config.block_lists) {
        for (int n = warp; n < 32; n += config.warps) {
            if (shown[n] != Shown::unknown) continue;
            const Shown at_places = block(n).at_places(p, seq);
            __syncwarp();  // all lanes have read what is written now
            if (lane == 0) shown[n] = at_places;
        }
        __syncthreads();
    }
    if (warp != 0) return;
    const Shown mine = shown[lane];
    const MapWords made{__ballot_sync(~0u, mine != Shown::nothing), __ballot_sync(~0u, mine == Shown::all)};
    if (lane != 0) return;
    words = made;
    // the next launch deals tiles out by it
    if (blockIdx.x == 0 && p.ws_ticket != nullptr) *p.ws_ticket = 0;
}

}  // namespace flashtile
