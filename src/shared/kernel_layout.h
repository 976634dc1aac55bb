// kernel_layout.h: how a KernelConfig lies in shared memory, so that the host asks for exactly what the kernel uses.
// Included by the host compiler and by NVRTC; includes nothing but kernel_config.h.
#pragma once

#include "shared/kernel_config.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int size_of(Element element) {
    return element == Element::fp32 ? 4 : element == Element::e4m3 ? 1 : 2;
}

constexpr int round_up(int n, int multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Columns as the tensor cores see them; those that fill up are zero. In backward two warps may share a row of the
// result, with at least 16 columns each.
constexpr int padded(const KernelConfig& c, int columns) {
    const bool forward = c.kernel == Kernel::forward_sm80 || c.kernel == Kernel::split_forward_sm80 ||
                         c.kernel == Kernel::forward_sm90 || c.kernel == Kernel::latent_forward_sm90;
    return round_up(columns, forward && c.element != Element::e4m3 ? 16 : 32);
}

// Elements from one row of a tile to the next. A row takes an odd number of 16-byte pieces, so that the same piece of
// eight successive rows lies in eight different groups of four banks: ldmatrix then meets no bank conflict, at every
// width and with addresses that are a base plus a constant.
constexpr int pitch(const KernelConfig& c, int columns) {
    const int pieces = padded(c, columns) * size_of(c.element) / 16;
    return (pieces | 1) * 16 / size_of(c.element);
}

constexpr int tile_bytes(const KernelConfig& c, int rows, int columns) {
    return rows * pitch(c, columns) * size_of(c.element);
}

constexpr int larger(int a, int b) {
    return a > b ? a : b;
}

// The general forward on pages: for how many blocks of keys shared memory holds where they lie. Of e4m3 keys one more
// block is on its way.
constexpr int key_place_slots(const KernelConfig& c) {
    return c.stages + (c.converts_kv ? 2 : 1);
}

// The general forward on e4m3 keys: a block of K and V as they lie in memory, and what stages of them take, with the
// scales of keys where blocks have their own.
constexpr int raw_pitch(int columns) {
    return round_up(columns, 16);
}
constexpr int raw_bytes(const KernelConfig& c) {
    return c.Bc * (raw_pitch(c.head_dim) + raw_pitch(c.head_dim_v));
}
constexpr int scales_bytes(const KernelConfig& c) {
    return c.scale_blocks ? c.Bc * 2 * 4 : 0;
}

// Q, whose place O takes later, then the stages of K and V, then where keys lie. Of e4m3 keys there is one tile, with
// scales, and behind it the stages.
constexpr int forward_tiles_bytes(const KernelConfig& c) {
    const int keys = tile_bytes(c, c.Bc, c.head_dim) + tile_bytes(c, c.Bc, c.head_dim_v);
    return tile_bytes(c, c.Br, larger(c.head_dim, c.head_dim_v)) +
           (c.converts_kv ? keys + scales_bytes(c) + c.stages * (raw_bytes(c) + scales_bytes(c)) : c.stages * keys);
}
constexpr int forward_shared_bytes(const KernelConfig& c) {
    return forward_tiles_bytes(c) + (c.paged ? key_place_slots(c) * c.Bc * 8 : 0);
}
// Where keys may be split: the number of a thread block's next unit of work, and that of the one before.
constexpr int split_next_offset(const KernelConfig& c) {
    return round_up(forward_shared_bytes(c), 16);
}
constexpr int split_forward_shared_bytes(const KernelConfig& c) {
    return split_next_offset(c) + 16;
}

// Kernels that make a row of several: how many neighbouring lanes share it, enough for all its columns if there are as
// many: a warp has 32.
constexpr int row_lanes(const KernelConfig& c, int most = 32) {
    int lanes = 1;
    while (lanes < most && lanes * c.vector_bytes < c.head_dim_v * size_of(c.element)) lanes *= 2;
    return lanes;
}

// combine_shares.h: how many groups of lanes a thread block has, each with all columns of a row; and how many parts of
// a row a lane has on their way.
constexpr int combine_groups(const KernelConfig& c) {
    const int lanes = c.warps * 32;
    return lanes / row_lanes(c, lanes);
}
constexpr int kPartsAtOnce = 4;

// On Hopper tiles lie as TMA's 128-byte swizzle leaves them: in chunks of kChunk columns of 16 bits, or chunk_of(e4m3)
// columns, each of rows of kChunkRowBytes.
constexpr int kChunkRowBytes = 128;
constexpr int chunk_of(Element element) {
    return kChunkRowBytes / size_of(element);
}
constexpr int kChunk = chunk_of(Element::bf16);
constexpr int chunk_columns(int columns, int chunk = kChunk) {
    return round_up(columns, chunk);
}
constexpr int kLeastPageBox = 16;   // rows of a page that are worth a copy of TMA
constexpr int kMostBarriers = 384;  // bytes of barriers, and of the slots beside them

// Hopper's forward: the next tile's Q has a stage of its own where shared memory has room.
constexpr int query_stages(const KernelConfig& c) {
    return larger(c.head_dim, c.head_dim_v) <= 128 ? 2 : 1;
}

// Hopper's forward: columns of O as products see them. Products of e4m3 need no whole chunks of V.
constexpr int output_columns(const KernelConfig& c) {
    if (c.element != Element::e4m3) return chunk_columns(c.head_dim_v);
    return c.head_dim_v > 64 && c.head_dim_v <= 96 ? 96 : round_up(c.head_dim_v, 64);
}

// Hopper's forward for e4m3, whose products take both factors with the inner dimension contiguous: a stage of V
// transposed, in chunks of keys (transposed_values.h).
constexpr int transposed_bytes(const KernelConfig& c) {
    return output_columns(c) * chunk_columns(c.Bc, chunk_of(Element::e4m3));
}

// Hopper's forward where K and V are e4m3: a block of K beside the 16-bit one that it becomes, and of V beside what is
// made of it, as they come.
constexpr int raw_key_bytes(const KernelConfig& c) {
    return c.converts_kv ? c.Bc * chunk_columns(c.head_dim, chunk_of(Element::e4m3)) : 0;
}
constexpr int raw_value_bytes(const KernelConfig& c) {
    const bool e4m3 = c.converts_kv || c.element == Element::e4m3;
    return e4m3 ? c.Bc * chunk_columns(c.head_dim_v, chunk_of(Element::e4m3)) : 0;
}

// The type of O.
constexpr Element output_element(const KernelConfig& c) {
    const bool own = c.element == Element::e4m3 || c.converts_q || c.out_element == Element::fp32;
    return own ? c.out_element : c.element;
}

// Hopper's forward for latent heads: V is the first columns of K, and is not loaded.
constexpr bool keys_hold_values(const KernelConfig& c) {
    return c.kernel == Kernel::latent_forward_sm90;
}

// Hopper's forward: how many warpgroups compute, with 64 queries each; two share 64 latent heads.
constexpr int forward_consumers(const KernelConfig& c) {
    return keys_hold_values(c) ? 2 : c.Br / 64;
}

// What one of these two hands to the other: P, and a factor of each row.
constexpr int handed_to_second_bytes(const KernelConfig& c) {
    return keys_hold_values(c) ? c.Br * c.Bc * size_of(c.element) + c.Br * 4 : 0;
}

// Hopper's forward with dropout: the draws of two blocks, with a bit for each probability. A word of a lane has 16
// pairs.
constexpr int kDropoutStages = 2;
constexpr int kept_words(int keys) {
    return round_up(keys / 4, 16) / 16;  // a lane has keys / 4 pairs
}
constexpr int dropout_bytes(const KernelConfig& c) {
    return c.dropout ? kDropoutStages * forward_consumers(c) * 128 * kept_words(c.Bc) * 4 : 0;
}

// Hopper's forward where lengths lie in device memory: the order of at most so many sequences, and one entry for their
// end. Beside a mask function alone: the order of at most so many lines of its map. (Of lists alone the first head's
// lines say little of the others'.)
constexpr int kMostOrdered = 64, kMostLines = 256;
constexpr bool orders_lines(const KernelConfig& c) {
    return c.mask_function && !c.lists_alone && !c.lengths_differ();
}
constexpr int order_bytes(const KernelConfig& c) {
    if (orders_lines(c)) return kMostLines * 4;
    return c.lengths_differ() && !c.shares ? (kMostOrdered + 1) * 16 : 0;
}

// Hopper's forward where only the device knows what a tile has to do: a warp that stands idle beside the producer finds
// tiles, and this is the place of one. Another is that of a tile that is brought a second time. (Three thread blocks of
// a multiprocessor hide that from each other, and have no registers for it.)
constexpr bool finds_tiles(const KernelConfig& c) {
    return c.kernel == Kernel::forward_sm90 && c.uneven_in_memory() && !c.dropout && !c.shares && !c.cache &&
           !c.converts_kv && c.element != Element::e4m3 && c.blocks_per_sm <= 2;
}
constexpr int kFoundTileBytes = 64;
constexpr int found_bytes(const KernelConfig& c) {
    return finds_tiles(c) ? 2 * kFoundTileBytes : 0;
}

// Hopper's forward where keys lie in a cache or are shared out: what slots and stages tell more, and this thread
// block's share. Beside a mask function: what a stage of K tells.
constexpr int serving_bytes(const KernelConfig& c) {
    return c.cache || c.shares ? 256 : c.mask_function ? round_up(c.stages * 4, 16) : 0;
}

// Hopper's forward: so many rows share their scales, whether a block of scales has 64 rows or 128. Where blocks have
// scales, what a stage of K tells of each such group of its keys, and of the whole block.
constexpr int kScaleGroup = 64;
constexpr int told_scales_bytes(const KernelConfig& c) {
    return c.scale_blocks ? (c.Bc / kScaleGroup + 1) * 16 : 0;
}

// Hopper's kernels where TMA loads the bias: the bias of one block. It is read at the start of a step, and the
// next block's is loaded during the rest of the step.
constexpr int bias_bytes(const KernelConfig& c) {
    return c.bias_mapped ? c.Br * chunk_columns(c.Bc) * size_of(c.element) : 0;
}

// The stages of Q, K and V, what lies beside them, and what aligning the start to 1024 bytes may take.
constexpr int forward_sm90_staged_bytes(const KernelConfig& c) {
    const int chunk = chunk_of(c.element), d = chunk_columns(c.head_dim, chunk);
    const int dv = keys_hold_values(c) ? 0 : chunk_columns(c.head_dim_v, chunk);
    const int values = c.element == Element::e4m3 ? transposed_bytes(c) : size_of(c.element) * c.Bc * dv;
    return size_of(c.element) * (query_stages(c) * c.Br * d + c.stages * c.Bc * d) +
           c.stages * (values + raw_key_bytes(c) + raw_value_bytes(c)) + bias_bytes(c) + handed_to_second_bytes(c) +
           kMostBarriers + dropout_bytes(c) + order_bytes(c) + found_bytes(c) + serving_bytes(c) +
           c.stages * told_scales_bytes(c) + 1024;
}

// What the system takes of a multiprocessor's shared memory for each thread block, beside what the block asks for.
constexpr int kReservedSharedMemory = 1024;

// Hopper's forward: in how many parts O is copied to a place of its own, from which TMA stores it: whole, in two parts,
// or, where there is no room, not at all (0). 64 columns are stored about as fast without it, and 7% faster where all
// tiles are equal. Heads that share a tile need it.
constexpr int output_parts(const KernelConfig& c) {
    const int of_block = 228 * 1024 / c.blocks_per_sm - kReservedSharedMemory;  // on sm_90
    const int left = of_block - forward_sm90_staged_bytes(c),
              whole = c.Br * chunk_columns(c.head_dim_v) * size_of(c.element);
    if (output_element(c) != c.element) return 0;
    if (c.shares || keys_hold_values(c)) return 0;  // most of O goes to the workspace; there is no room
    if (!c.band && c.head_dim_v <= kChunk && c.group_rows == 1) return 0;
    if (whole <= left) return 1;
    return chunk_columns(c.head_dim_v) % (2 * kChunk) == 0 && whole / 2 <= left ? 2 : 0;
}
constexpr int output_bytes(const KernelConfig& c) {
    const int parts = output_parts(c);
    return parts == 0 ? 0 : c.Br * chunk_columns(c.head_dim_v) * size_of(c.element) / parts;
}

constexpr int forward_sm90_shared_bytes(const KernelConfig& c) {
    return forward_sm90_staged_bytes(c) + output_bytes(c);
}

// What backward keeps of a row beside Q and dO: LSE in log2 units, LSE in natural units, D.
constexpr int kRowStatistics = 3;

// K and V, the stages of Q, dO and the rows' statistics, then P and dS, then two sets of bits, one bit for each key
// that is seen.
constexpr int backward_shared_bytes(const KernelConfig& c) {
    return tile_bytes(c, c.Bc, c.head_dim) + tile_bytes(c, c.Bc, c.head_dim_v) +
           c.stages *
               (tile_bytes(c, c.Br, c.head_dim) + tile_bytes(c, c.Br, c.head_dim_v) + kRowStatistics * c.Br * 4) +
           2 * tile_bytes(c, c.Br, c.Bc) + 2 * round_up(c.Bc, 32) / 8;
}

// Hopper's backward for the widest heads has pairs of thread blocks for two neighbouring blocks of keys.
constexpr int paired_blocks(const KernelConfig& c) {
    return c.kernel == Kernel::backward_pair_sm90 ? 2 : 1;
}
// Thread blocks of a cluster, which reach each other's shared memory.
constexpr int cluster_blocks(const KernelConfig& c) {
    return paired_blocks(c) * c.head_parts;
}
// A thread block of a pair makes half of the columns of dQ with the keys of both. So it has that half of the other's K
// and two tiles of the other's dS, and room for one block of dO only.
constexpr int other_key_bytes(const KernelConfig& c) {
    return paired_blocks(c) == 2 ? c.Bc * chunk_columns(c.head_dim) / 2 * size_of(c.element) : 0;
}
constexpr int dout_stages(const KernelConfig& c) {
    return paired_blocks(c) == 2 ? 1 : c.stages;
}

// Deterministic backward: the thread blocks of a pair add to different columns of dQ, and each half has turns of its
// own.
constexpr int kTurnsOfUnit = 2;

// Hopper's backward for wide heads: a tile of P, which one consumer hands over to the other.
constexpr int handed_over_bytes(const KernelConfig& c) {
    const bool wide = c.kernel == Kernel::backward_wide_sm90 || c.kernel == Kernel::backward_pair_sm90;
    return wide ? c.Br * c.Bc * size_of(c.element) : 0;
}

// Hopper's backward exchanges LSE and D of neighbouring rows (KernelParams::row_flip), but not where the general kernel
// of dbias reads them, too.
constexpr int row_flip(const KernelConfig& c) {
    return c.bias == BiasElement::none ? 1 : 0;
}

// K and V, the stages of Q and dO, two tiles of dS of each block of a pair, two of P where it is handed over, a
// bias, the statistics of the stages, barriers.
constexpr int backward_sm90_shared_bytes(const KernelConfig& c) {
    const int d = chunk_columns(c.head_dim), dv = chunk_columns(c.head_dim_v);
    return size_of(c.element) *
               (c.Bc * (d + dv) + c.Br * (c.stages * d + dout_stages(c) * dv) + paired_blocks(c) * 2 * c.Br * c.Bc) +
           other_key_bytes(c) + 2 * handed_over_bytes(c) + bias_bytes(c) + c.stages * 2 * c.Br * 4 + kMostBarriers +
           1024;
}

// quantize and dequantize: how many elements a lane has side by side, how many lanes share a row, and how many such
// pieces a lane has of it.
constexpr int quantize_piece(const KernelConfig& c) {
    return c.vector_bytes / size_of(c.element);
}
// A lane has up to 32 columns, so that most of M and all of the rotation happens in its own registers; but the lanes of
// a row load 64 bytes side by side, where it has so many.
constexpr int quantize_row_lanes(const KernelConfig& c) {
    int lanes = 1;
    while (lanes < 32 && lanes * quantize_piece(c) < c.head_dim &&
           (lanes * 32 < c.head_dim || lanes * c.vector_bytes < 64))
        lanes *= 2;
    return lanes;
}
constexpr int quantize_pieces(const KernelConfig& c) {
    const int columns = quantize_row_lanes(c) * quantize_piece(c);
    return (c.head_dim + columns - 1) / columns;
}
// Elements of a block of Br rows that a lane has. Rows of up to kQuantizeKept are read once.
constexpr int kQuantizeKept = 64;
constexpr int quantize_elements(const KernelConfig& c) {
    return c.Br * quantize_row_lanes(c) / (c.warps * 32) * quantize_pieces(c) * quantize_piece(c);
}
// Whether shared memory gets a block while the one before it is quantised: 64 KB for a multiprocessor at most.
constexpr bool quantize_ahead(const KernelConfig& c) {
    return size_of(c.element) == 2 && c.vector_bytes >= 4 && quantize_elements(c) <= kQuantizeKept;
}
// Of how many heads a thread block does the same rows at a time: a lane then loads its angles once for all of them.
constexpr int quantize_heads(const KernelConfig& c) {
    return quantize_ahead(c) && 2 * quantize_elements(c) <= kQuantizeKept ? 2 : 1;
}
// First what shared memory gets, then the largest magnitude of each warp, of two blocks in turns.
constexpr int quantize_ahead_bytes(const KernelConfig& c) {
    return quantize_ahead(c) ? quantize_heads(c) * quantize_elements(c) * c.warps * 32 * size_of(c.element) : 0;
}

constexpr int shared_bytes(const KernelConfig& c) {
    switch (c.kernel) {
        case Kernel::forward_sm80:
            return forward_shared_bytes(c);
        case Kernel::split_forward_sm80:
            return split_forward_shared_bytes(c);
        case Kernel::forward_sm90:
        case Kernel::latent_forward_sm90:
            return forward_sm90_shared_bytes(c);
        case Kernel::backward_sm90:
        case Kernel::backward_wide_sm90:
        case Kernel::backward_pair_sm90:
            return backward_sm90_shared_bytes(c);
        case Kernel::backward_sm80:
        case Kernel::backward_bias_sm80:
        case Kernel::backward_tensors_sm80:
            return backward_shared_bytes(c);
        case Kernel::backward_finish:
            return tile_bytes(c, c.Br, c.head_dim);
        case Kernel::combine_shares:
            return combine_groups(c) * (c.head_dim_v + 2) * 4;  // O, m and l of what a group has folded
        case Kernel::deal_splits:
            return c.warps * 32 * 4;  // a thread's units
        case Kernel::quantize:
            return quantize_ahead_bytes(c) + 2 * quantize_heads(c) * c.warps * 4;
        case Kernel::backward_sinks:
            return c.warps * 32 * 8;  // a thread's sum in fp64
        case Kernel::mask_blocks:
            return 32;  // what is found of each block
        default:
            return 0;
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
