// kernel_config.h: everything about a CUDA kernel that is fixed when it is compiled. A KernelConfig is a template
// parameter of its kernel, printable as the C++ that makes it, and the key under which the compiled kernel is kept.
// Options that are off cost nothing, since their code is not there. Included by the host compiler and by NVRTC;
// includes nothing.
#pragma once

#ifndef FLASHTILE_TARGET
#define FLASHTILE_TARGET generic
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

enum class Kernel : int {
    forward_sm80,        // mma.sync, every GPU since Ampere
    forward_sm90,        // wgmma and TMA, Hopper
    backward_prepare,    // D, LSE in log2 units, dQ = 0
    backward_sm80,       // dK, dV, and dQ in fp32: mma.sync
    backward_sm90,       // the same: wgmma and TMA
    backward_finish,     // dQ to q's type
    backward_bias_sm80,  // dbias, by a pass of its own in a fixed order
    dropout_mask,        // which probabilities are kept, on its own
};

enum class Element : int { fp32, fp16, bf16 };

enum class BiasElement : int { none, fp32, same };  // same: that of q

struct KernelConfig {
    Kernel kernel = Kernel::forward_sm80;
    Element element = Element::bf16;
    int head_dim = 0;      // d, columns of Q and K
    int head_dim_v = 0;    // dv, columns of V and O (of a slice)
    int value_slices = 1;  // forward: thread blocks that share the columns of O, where registers do not hold them all

    // Hopper's forward: rows of a block for each query, one for each head of a group that shares its keys' head, and a
    // few to spare, to make a power of two: where queries are few, a head alone would leave most of a block empty.
    int group_rows = 1;

    int Br = 0;      // queries of a block, or rows of group_rows
    int Bc = 0;      // keys of a block
    int warps = 0;   // of a thread block
    int stages = 0;  // blocks of K and V (forward) or of Q and dO (backward) that lie in shared memory at once
    // Backward: how many warps split the rows of S (queries), of dK and dV (keys) and of dQ (queries); the others split
    // the columns.
    int warps_s = 0;
    int warps_dkv = 0;
    int warps_dq = 0;
    int blocks_per_sm = 1;  // thread blocks that must fit a multiprocessor: it bounds the registers
    int vector_bytes = 0;   // of one load from q, k, v (dout): 16, 8, 4 or 2, as pointers, strides and d allow

    bool lse = false;          // forward writes LSE
    bool band = false;         // causal or window
    bool window = false;       // a band with a left side, too
    bool packed = false;       // cumulative lengths
    bool seqused = false;      // keys shortened per sequence
    bool scale_first = false;  // scores are scaled before their maximum is taken: ALiBi, bias, or a scale <= 0
    bool softcap = false;
    bool alibi = false;
    BiasElement bias = BiasElement::none;
    bool bias_mapped = false;  // Hopper's forward: TMA brings it by blocks
    bool mask = false;
    bool dropout = false;
    bool deterministic = false;  // dQ is added to in turns
    bool lazy_rescale = false;   // forward lets the maximum lag behind; off where rows must not share a decision
    bool exact_max = false;      // Hopper's backward makes dS of P in fp32, whatever that costs

    // The lengths of sequences lie in device memory: no plan knows them.
    constexpr bool lengths_differ() const { return packed || seqused; }
    constexpr bool has_bias_or_mask() const { return mask || bias != BiasElement::none; }
    bool operator==(const KernelConfig&) const = default;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
