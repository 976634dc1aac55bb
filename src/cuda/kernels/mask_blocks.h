// mask_blocks.h: evaluates a mask function, and notes of which blocks of scores it shows something, and of which all
// (block_map.h): on intervals of queries and keys, and where these do not tell, at every place. A function that does
// not ask for the head is evaluated once for all heads.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/functions.h"
#include "cuda/kernels/ptx/dependent_launch.h"

namespace flashtile {

// What the mask function may give for queries [i0, i1) and keys [j0, j1).
template <KernelConfig config>
__device__ __forceinline__ intervals::Bools mask_interval_of(const KernelParams& p, const Sequence& seq, int i0, int i1,
                                                             int j0, int j1) {
    const Index origin_i = origin_i_of(p, seq.b), origin_j = origin_j_of(p, seq.b);
    return mask_interval<config>(arguments_of(p, seq), {origin_i + i0, origin_i + i1 - 1},
                                 {origin_j + j0, origin_j + j1 - 1});
}

// A block of the scores, on one warp; at its places 16 queries at a time, until it is known to be mixed.
template <KernelConfig config>
__device__ __forceinline__ void evaluate_block(const KernelParams& p, const Sequence& seq, int i0, int j0, bool& shown,
                                               bool& whole) {
    const int i1 = smaller(i0 + config.Br, seq.seqlen_q), j1 = smaller(j0 + config.Bc, seq.seqlen_k);
    if (i0 >= i1 || j0 >= j1 || !seq.sees_any<config>(i0, i1, j0, j1)) return;
    bool any = false, all = true;
    if constexpr (config.block_lists) {  // which say enough
        const BlockKind kind = block_kinds_of(p, seq).of(i0, i1, j0, j1);
        any = kind != BlockKind::hidden;
        all = kind == BlockKind::full;
    } else if (const intervals::Bools found = mask_interval_of<config>(p, seq, i0, i1, j0, j1);
               found.low || !found.high) {
        any = found.high;
    } else {
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
    }
    shown = any;
    whole = any && all;
}

extern __shared__ __align__(16) unsigned char shared_memory[];

// Each of a thread block's eight warps has a block of the scores, and so the thread block makes a byte of a word that
// says what is shown, and one of a word that says what is whole.
template <KernelConfig config>
__device__ __forceinline__ void mask_blocks(const KernelParams& p) {
    using Map = BlockMap<config>;
    static_assert(config.warps == 8, "");
    ptx::let_next_launch_begin();
    Index n = blockIdx.x / 4;
    const int byte = static_cast<int>(blockIdx.x % 4);
    auto* const to = reinterpret_cast<unsigned char*>(p.ws_block_map + n * 2) + byte;
    const int block =
        (static_cast<int>(n % Map::words(p)) * 32 + byte * 8 + static_cast<int>(warp_id())) * Map::kBlockRows;
    n /= Map::words(p);
    const int line = static_cast<int>(n % Map::lines(p)) * Map::kLineRows;
    n /= Map::lines(p);
    const Sequence seq = Sequence::make<config>(p, n / p.block_map_heads, n % p.block_map_heads);
    bool shown = false, whole = false;
    evaluate_block<config>(p, seq, Map::kOfKeys ? block : line, Map::kOfKeys ? line : block, shown, whole);
    if (lane_id() == 0) shared_memory[warp_id()] = static_cast<unsigned char>((shown ? 1 : 0) + (whole ? 2 : 0));
    __syncthreads();
    if (threadIdx.x >= 2) return;
    unsigned bits = 0;
    for (int w = 0; w < config.warps; ++w) bits |= (shared_memory[w] >> threadIdx.x & 1u) << w;
    to[threadIdx.x * 4] = static_cast<unsigned char>(bits);
    // the next launch deals tiles out by it
    if (blockIdx.x == 0 && threadIdx.x == 0 && p.ws_ticket != nullptr) *p.ws_ticket = 0;
}

}  // namespace flashtile
