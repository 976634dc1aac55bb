// e4m3.cpp: the kernels that take e4m3, and those that make it, as variants that must compile: on every architecture,
// in pairs of what they depend on.
#include <algorithm>
#include <tuple>
#include <utility>

#include "cuda/plan/append_kv.h"
#include "cuda/plan/quantize.h"
#include "cuda/variants/pairwise.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {
namespace {

constexpr const char* kDevices[] = {"A100-80", "RTX 3090", "RTX 4090", "H200", "B200", "RTX 5090"};
constexpr std::pair<int, int> kDims[] = {{128, 128}, {64, 64}, {256, 256}, {96, 96},
                                         {192, 128}, {40, 72}, {13, 57},   {512, 512}};

std::vector<Variant> forward() {
    enum FactorIndex : std::size_t {
        graphics_card,
        dims,
        type,
        band,
        lengths,
        blocks,
        out,
        queries,
        keys,
        option,
        sinks,
        exact
    };
    enum Type { all_e4m3, beside_bf16, beside_fp16 };
    enum Keys { dense, cache_rows, pages };
    enum Option { none, softcap, alibi, mask, dropout };
    constexpr int kQueries[] = {2048, 1, 40};
    std::vector<Variant> result;
    for (const Row& row : pairwise({6, 8, 3, 3, 3, 2, 2, 3, 3, 5, 2, 2}, [](const Row&) { return true; })) {
        Problem p;
        constexpr DType kTypes[] = {DType::fp8_e4m3, DType::bf16, DType::fp16};
        p.dtype = kTypes[row[type]];
        if (row[type] != all_e4m3) p.kv_dtype = DType::fp8_e4m3;
        if (row[out] == 1)
            p.out_dtype = DType::fp32;
        else if (row[type] == all_e4m3)
            p.out_dtype = DType::bf16;
        p.scale_block = row[blocks] == 1 ? 64 : 0;
        p.k_scale = p.v_scale = row[blocks] == 1 ? ScaleKind::block : ScaleKind::head;
        if (row[type] == all_e4m3) p.q_scale = p.k_scale;
        p.batch = 4;
        p.heads = 8;
        p.kv_heads = 2;
        p.seqlen_q = kQueries[row[queries]];
        p.seqlen_k = 8192;
        std::tie(p.head_dim, p.head_dim_v) = kDims[row[dims]];
        p.scale = 0.125f;
        if (row[band] != 0) p.window_right = 0;
        if (row[band] == 2) p.window_left = 1000;
        p.packed = row[lengths] == 1;
        p.total_q = p.batch * p.seqlen_q;
        p.total_k = p.batch * p.seqlen_k;
        p.cache = row[keys] != dense;
        p.page_size = row[keys] == pages ? 16 : 0;
        p.pages = p.cache ? 4 * 512 : 0;
        p.softcap = row[option] == softcap ? 30.0f : 0.0f;
        p.alibi = row[option] == alibi;
        p.mask = row[option] == mask;
        p.dropout_threshold = row[option] == dropout ? 6554 : 0;
        if (row[sinks] == 1) p.sinks = DType::fp32;
        p.exact_max = row[exact] == 1;
        const gpu::DeviceFacts& device = gpu::known_device(kDevices[row[graphics_card]]);
        gpu::Access access = gpu::contiguous_access(p);
        access.seqused = row[lengths] == 2;
        for (const gpu::Launch& launch : gpu::plan_forward(p, access, device).launches)
            result.push_back({device.architecture, launch.config});
    }
    return result;
}

// Hopper's own kernel, of which the pairs above have few: its head dimensions with each mask and kind of scale.
std::vector<Variant> of_hopper() {
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    std::vector<Variant> result;
    for (const int d : {32, 64, 96, 128, 192, 256})
        for (const int masked : {0, 1, 2})
            for (const bool blocks : {false, true}) {
                Problem p;
                p.dtype = DType::fp8_e4m3;
                p.out_dtype = DType::bf16;
                p.q_scale = p.k_scale = p.v_scale = blocks ? ScaleKind::block : ScaleKind::tensor;
                p.scale_block = blocks ? 128 : 0;
                p.batch = 4;
                p.heads = p.kv_heads = 8;
                p.seqlen_q = p.seqlen_k = 8192;
                p.total_q = p.total_k = p.batch * p.seqlen_q;
                p.head_dim = p.head_dim_v = d;
                p.scale = 0.125f;
                if (masked != 0) p.window_right = 0;
                if (masked == 2) p.window_left = 1000;
                p.packed = (d / 32 + masked + (blocks ? 1 : 0)) % 2 != 0;  // each choice of the others has both
                const gpu::Plan plan = gpu::plan_forward(p, gpu::contiguous_access(p), device);
                for (const gpu::Launch& launch : plan.launches) result.push_back({device.architecture, launch.config});
            }
    return result;
}

// The same kernel on a cache of e4m3 under 16-bit queries.
std::vector<Variant> caches_of_hopper() {
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    enum FactorIndex : std::size_t { type, dim, queries, masked, blocks, lengths, keys };
    enum Lengths { equal, packed, seqused };
    std::vector<Variant> result;
    constexpr int kHeadDims[] = {64, 128, 256, 192};
    for (const Row& row : pairwise({2, 4, 2, 3, 2, 3, 2}, [](const Row&) { return true; })) {
        Problem p;
        p.dtype = row[type] == 0 ? DType::bf16 : DType::fp16;
        p.kv_dtype = DType::fp8_e4m3;
        p.head_dim = p.head_dim_v = kHeadDims[row[dim]];
        p.batch = 16;
        p.heads = 32;
        p.kv_heads = 8;
        p.seqlen_q = row[queries] == 0 ? 1 : 1024;
        p.seqlen_k = 8192;
        p.packed = row[lengths] == packed;
        p.total_q = p.batch * p.seqlen_q;
        p.scale = 0.125f;
        if (row[masked] != 0) p.window_right = 0;
        if (row[masked] == 2) p.window_left = 1000;
        p.k_scale = p.v_scale = row[blocks] == 0 ? ScaleKind::head : ScaleKind::block;
        p.scale_block = row[blocks] == 0 ? 0 : 64;
        p.cache = true;
        p.pages = p.batch;
        if (row[keys] == 1 && row[blocks] == 0) {  // scales of blocks in pages are the general kernel's
            p.page_size = 64;
            p.pages = p.batch * p.seqlen_k / p.page_size;
        }
        gpu::Access access = gpu::contiguous_access(p);
        access.seqused = row[lengths] == seqused;
        for (const gpu::Launch& launch : gpu::plan_forward(p, access, device).launches)
            result.push_back({device.architecture, launch.config});
    }
    return result;
}

std::vector<Variant> quantizing() {
    std::vector<Variant> result;
    for (const Row& row : pairwise({6, 3, 8, 2, 4}, [](const Row&) { return true; })) {
        const gpu::DeviceFacts& device = gpu::known_device(kDevices[row[0]]);
        constexpr DType kTypes[] = {DType::bf16, DType::fp16, DType::fp32};
        QuantizeProblem p;
        p.dtype = kTypes[row[1]];
        p.batch = p.heads = p.scale_heads = 1;
        p.seqlen = 1024;
        p.head_dim = kDims[row[2]].first;
        p.scale = ScaleKind::block;
        p.scale_block = row[3] == 0 ? 64 : 128;
        QuantizeOperands contiguous;  // without addresses and strides, which would be multiples of a row
        const int bytes =
            std::max(gpu::quantize_vector_bytes(p, contiguous) >> row[4], static_cast<int>(size_of(p.dtype)));
        for (const std::int64_t pairs : {std::int64_t{0}, p.head_dim / 2}) {  // rotated rows have other shares
            p.pairs = pairs;
            result.push_back({device.architecture, gpu::plan_quantize(p, bytes, 16, device).launches[0].config});
        }
        result.push_back({device.architecture, gpu::plan_dequantize(p, bytes, 16, device).config});
    }
    for (const char* name : kDevices) {
        const gpu::DeviceFacts& device = gpu::known_device(name);
        for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32})
            for (int bytes = static_cast<int>(size_of(dtype)); bytes <= 16; bytes *= 2) {
                AppendProblem p;
                p.dtype = dtype;
                p.cache_dtype = DType::fp8_e4m3;
                result.push_back({device.architecture, gpu::plan_append(p, bytes, device).config});
            }
    }
    return result;
}

}  // namespace

std::vector<Variant> e4m3() {
    std::vector<Variant> result = forward();
    for (const auto& list : {of_hopper(), caches_of_hopper(), quantizing()})
        result.insert(result.end(), list.begin(), list.end());
    return result;
}

}  // namespace flashtile::variants
