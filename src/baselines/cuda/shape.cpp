// shape.cpp: see shape.h.
#include "baselines/cuda/shape.h"

#include <string>

#include "core/error.h"

namespace flashtile::gpu_baselines {

void require(const Shape& s, Element element, int multiple, int widest) {
    const auto refuse = [](const std::string& what) {
        throw Error(FLASHTILE_UNSUPPORTED, "baseline on CUDA: " + what);
    };
    constexpr std::int64_t kLongest = std::int64_t{1} << 24;
    if (element == Element::fp32) refuse("dtype is fp32, supported are fp16 and bf16");
    if (s.head_dim <= 0 || s.head_dim % multiple != 0 || s.head_dim > widest)
        refuse("head_dim is " + std::to_string(s.head_dim) + ", supported are multiples of " +
               std::to_string(multiple) + " up to " + std::to_string(widest));
    if (s.kv_heads != s.heads)
        refuse("kv_heads is " + std::to_string(s.kv_heads) + ", supported is heads, " + std::to_string(s.heads));
    if (s.seqlen_q > kLongest || s.seqlen_k > kLongest) refuse("sequences of more than 2^24 rows are not supported");
    if (!(s.scale > 0.0f)) refuse("scale is " + std::to_string(s.scale) + ", supported is a positive one");
}

KernelConfig config_of(const Shape& s, Element element) {
    KernelConfig c;
    c.kernel = Kernel::forward_sm80;
    c.element = element;
    c.head_dim = c.head_dim_v = static_cast<int>(s.head_dim);
    c.vector_bytes = 16;
    c.lse = true;
    c.band = s.causal;
    return c;
}

void set_tile(KernelConfig& c, const gpu::Tile& tile) {
    c.Br = tile.Br;
    c.Bc = tile.Bc;
    c.warps = tile.warps;
    c.stages = tile.stages;
    c.blocks_per_sm = tile.blocks_per_sm;
}

std::string to_string(const WorkPartition& ways) {
    const auto word = [](bool on) { return on ? "true" : "false"; };
    return std::string("flashtile::WorkPartition{") + word(ways.deferred) + ", " + word(ways.over_sequence) + ", " +
           word(ways.split_queries) + "}";
}

DeviceTensor tensor_of(const Shape& s, const void* data, std::int64_t seqlen) {
    return {const_cast<void*>(data), seqlen * s.heads * s.head_dim, s.heads * s.head_dim, s.head_dim, 1};
}

KernelParams params_of(const Shape& s, const Operands& x) {
    KernelParams p{};
    p.q = tensor_of(s, x.q, s.seqlen_q);
    p.k = tensor_of(s, x.k, s.seqlen_k);
    p.v = tensor_of(s, x.v, s.seqlen_k);
    p.out = tensor_of(s, x.out, s.seqlen_q);
    p.dout = tensor_of(s, x.dout, s.seqlen_q);
    p.dq = tensor_of(s, x.dq, s.seqlen_q);
    p.dk = tensor_of(s, x.dk, s.seqlen_k);
    p.dv = tensor_of(s, x.dv, s.seqlen_k);
    p.lse = {x.lse, s.heads * s.seqlen_q, 1, s.seqlen_q, 1};
    p.batch = static_cast<int>(s.batch);
    p.heads = p.kv_heads = static_cast<int>(s.heads);
    p.group = 1;
    p.seqlen_q = s.seqlen_q;
    p.seqlen_k = s.seqlen_k;
    p.head_dim_v = s.head_dim;
    constexpr double kLog2e = 1.4426950408889634;
    p.scale = s.scale;
    p.scale_log2 = static_cast<float>(static_cast<double>(s.scale) * kLog2e);
    p.natural_unit = static_cast<double>(s.scale) / static_cast<double>(p.scale_log2);
    p.window_left = -1;
    p.window_right = s.causal ? 0 : -1;
    return p;
}

}  // namespace flashtile::gpu_baselines
