// kernel_config.h: everything about a CUDA kernel that is fixed when it is compiled. A KernelConfig is a template
// parameter of its kernel, and the compiled kernel is kept under it as the key. It can be printed as C++. An option
// that is off costs nothing, since its code is not compiled. The host compiler and NVRTC include this file; it includes
// nothing.
#pragma once

#ifndef FLASHTILE_TARGET
#define FLASHTILE_TARGET generic
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

enum class Kernel : int {
    forward_sm80,           // mma.sync, every GPU since Ampere
    split_forward_sm80,     // the same with keys in a cache, and split over thread blocks
    forward_sm90,           // wgmma and TMA, Hopper
    latent_forward_sm90,    // the same for wide heads whose V is the first columns of K
    backward_prepare,       // D, LSE in log2 units, dQ = 0
    backward_sm80,          // dK, dV, and dQ in fp32: mma.sync, every GPU since Ampere
    backward_sm90,          // the same: wgmma and TMA, Hopper
    backward_wide_sm90,     // the same, where d is over 192 or dv over 128
    backward_pair_sm90,     // the same, where both are over 192: two thread blocks share their dS
    backward_finish,        // converts dQ to q's type
    backward_bias_sm80,     // dbias, in a pass of its own that adds in a fixed order
    backward_tensors_sm80,  // gradients of the tensors that a score function reads, in a pass of its own
    clear_tensors,          // sets them to zero before it
    backward_sinks,         // dsinks, which needs D and LSE only
    dropout_mask,           // writes which probabilities dropout keeps
    block_kinds,            // what the user's lists say of each block of the scores
    mask_blocks,            // which blocks of the scores a mask function shows something of
    deal_splits,            // how many splits each sequence has, for split_forward_sm80
    combine,                // what the splits of the keys came to, to O and LSE
    combine_shares,         // the same, of equal shares
    merge,                  // partial results to the result of all keys
    append_kv,              // new keys and values to a cache, rotated
    quantize,               // a tensor to e4m3 numbers and scales
    dequantize,             // the way back
};

enum class Element : int { fp32, fp16, bf16, e4m3 };

enum class BiasElement : int { none, fp32, same };  // same: the type of q

// Ints that fp32 holds exactly, with their sums and differences.
constexpr int kNearPositions = 1 << 23;

struct KernelConfig {
    Kernel kernel = Kernel::forward_sm80;
    Element element = Element::bf16;
    int head_dim = 0;      // d, columns of Q and K
    int head_dim_v = 0;    // dv, columns of V and O in a slice
    int value_slices = 1;  // forward: how many thread blocks share the columns of O, if registers do not hold them all

    // Forward: how many rows of a block belong to one query. Where queries are few, one head would leave most of a
    // block empty, so the heads that share a key head lie in one block, a row for each head of each query. On Hopper
    // the number is rounded up to a power of two.
    int group_rows = 1;

    int Br = 0;      // rows of a block: queries, unless group_rows is greater than 1
    int Bc = 0;      // keys of a block
    int warps = 0;   // in a thread block
    int stages = 0;  // how many blocks of K and V (forward) or of Q and dO (backward) shared memory holds
    // Backward: how many warps share the rows of S (queries), of dK and dV (keys), and of dQ (queries). Where these are
    // fewer than all warps, the warps share the columns, too.
    int warps_s = 0;
    int warps_dkv = 0;
    int warps_dq = 0;
    int blocks_per_sm = 1;  // how many thread blocks must fit a multiprocessor, which limits registers
    int vector_bytes = 0;   // bytes of one load from q, k, v, dout: 16, 8, 4 or 2, as pointers, strides and d allow

    // Of merge's out; of O where q is e4m3, or where it is fp32. Else O has the type `element`.
    Element out_element = Element::bf16;
    // The general forward: q, or k and v, lie in memory as e4m3 and become `element` as they are loaded. append_kv: the
    // cache is e4m3.
    bool converts_q = false;
    bool converts_kv = false;
    bool scale_blocks = false;  // blocks of 64 or 128 rows of e4m3 tensors have scales of their own

    bool lse = false;        // forward writes LSE
    bool band = false;       // causal or window
    bool window = false;     // the band has a left side, too
    bool packed = false;     // cumulative lengths
    bool seqused = false;    // each sequence has its own number of used keys
    bool seqused_q = false;  // and of used queries
    bool cache = false;      // keys lie in a cache, and `packed` speaks of queries only
    bool paged = false;      // and there in pages
    bool first_k = false;    // each sequence has keys at its start that are hidden
    bool chunk = false;      // the band's positions are cut in chunks
    bool diagonals = false;  // each sequence has a diagonal of its own
    bool tree_mask = false;
    bool sinks = false;
    bool scale_first = false;  // scale is applied before the maximum is taken: for ALiBi, bias, or a scale <= 0
    bool softcap = false;
    bool alibi = false;
    BiasElement bias = BiasElement::none;
    bool bias_mapped = false;  // Hopper's kernels: TMA loads blocks of bias
    bool mask = false;
    // The user's functions, whose code the JIT writes beside the kernel. `functions` is what this process calls them
    // (functions/functions.h); 0: none. No kernel knows this number, since another process may give it to others.
    int functions = 0;
    bool score_function = false;
    bool mask_function = false;  // or lists of blocks, or both
    bool block_lists = false;
    bool lists_alone = false;   // without a mask function
    bool narrow_lists = false;  // Hopper's backward: the two consumers' keys lie in different blocks of the lists
    // Functions: places and lengths are at least 0 and less than kNearPositions, and 32 bits hold offsets in tensors.
    bool near_positions = false;
    bool map_of_keys = false;  // mask_blocks: the map is walked from blocks of keys (block_map.h)
    bool dropout = false;
    // A shard's first row or column is no multiple of 16, or lies in memory and may be none, and so a lane's draws come
    // from more than one Philox call.
    bool shifted_dropout = false;
    bool deterministic = false;  // thread blocks add to dQ in a fixed order
    bool lazy_rescale = false;   // forward: m may lag behind the maximum; off with batch_invariant and exact_max
    // Hopper's forward, and its combine: thread blocks get equal shares of the blocks of keys of all sequences.
    bool shares = false;
    // With shares, and without windows and first_k: keys that sequences state to share are read once for all of them.
    bool prefixes = false;
    bool split = false;      // forward: the keys of a sequence with few queries are split (section 3.2 of the paper)
    bool exact_max = false;  // Hopper's backward computes dS from P in fp32, which is slower
    // Hopper's backward: how many thread blocks of a cluster share the query heads of a group.
    int head_parts = 1;

    // True if the lengths of sequences lie in device memory, so that the plan does not know them.
    constexpr bool lengths_differ() const { return packed || seqused; }
    // Likewise, of any length: a cache's row may be none, and its keys may be appended.
    constexpr bool lengths_in_memory() const { return lengths_differ() || seqused_q || cache; }
    // TMA's maps then hold keys that no query sees, too, and the kernel clears what V has there.
    constexpr bool maps_hold_hidden_keys() const { return lengths_in_memory() || first_k || chunk; }
    // Some keys at a sequence's start are not seen: left padding, or those of a prefix, which lie elsewhere.
    constexpr bool hides_first_keys() const { return first_k || prefixes; }
    constexpr bool packed_keys() const { return packed && !cache; }
    constexpr bool has_bias_or_mask() const { return mask || bias != BiasElement::none; }
    constexpr bool has_functions() const { return score_function || mask_function; }
    // Hopper's forward: what there is to do of a tile, only the device knows.
    constexpr bool uneven_in_memory() const { return lengths_differ() || mask_function; }
    bool operator==(const KernelConfig&) const = default;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
