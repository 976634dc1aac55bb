// latent.cpp: Hopper's forward kernel for latent heads, as variants that must compile, in pairs of what it depends on.
#include <tuple>
#include <utility>

#include "cuda/plan/candidate.h"
#include "cuda/variants/pairwise.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {

std::vector<Variant> latent() {
    enum FactorIndex : std::size_t {
        dtype,
        dims,
        heads,
        queries,
        band,
        lengths,
        cache,
        asked,
        softcap,
        scale,
        exact_max,
        lse
    };
    constexpr std::pair<std::int64_t, std::int64_t> kDims[] = {{576, 512}, {512, 512}, {448, 384}, {320, 72}};
    constexpr std::pair<std::int64_t, std::int64_t> kHeads[] = {{128, 1}, {16, 1}, {6, 2}, {4, 4}};
    const std::vector<int> choices = {2, 4, 4, 2, 3, 2, 3, 3, 2, 2, 2, 2};
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    std::vector<Variant> result;
    for (const Row& row : pairwise(choices, [](const Row&) { return true; })) {
        Problem p;
        p.dtype = row[dtype] == 0 ? DType::bf16 : DType::fp16;
        p.batch = 4;
        std::tie(p.head_dim, p.head_dim_v) = kDims[row[dims]];
        std::tie(p.heads, p.kv_heads) = kHeads[row[heads]];
        p.seqlen_q = row[queries] == 0 ? 2 : 100;
        p.seqlen_k = 4096;
        if (row[band] != 0) p.window_right = 0;
        if (row[band] == 2) p.window_left = 1000;
        p.cache = row[cache] != 0;
        p.page_size = row[cache] == 2 ? 64 : 0;
        if (row[asked] == 1) p.sinks = DType::fp32, p.attention_chunk = 512;
        if (row[asked] == 2) p.first_k = p.used_q = true;
        p.softcap = row[softcap] == 1 ? 30.0f : 0.0f;
        p.scale = row[scale] == 1 ? -0.125f : 0.125f;
        p.exact_max = row[exact_max] == 1;
        gpu::Access access = gpu::contiguous_access(p);
        access.values_in_keys = true;
        access.seqused = row[lengths] == 1;
        access.lse = row[lse] == 0;
        const auto main = gpu::latent_forward_sm90.main(gpu::question_of(p, access, device));
        result.push_back({device.architecture, main.value().config});
    }
    return result;
}

}  // namespace flashtile::variants
