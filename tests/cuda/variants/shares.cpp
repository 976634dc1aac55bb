// shares.cpp: Hopper's forward kernel as it serves, with what folds its parts, as variants that must compile, in pairs
// of what they depend on.
#include <utility>

#include "cuda/plan/candidate.h"
#include "cuda/variants/pairwise.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {

std::vector<Variant> shares() {
    enum FactorIndex : std::size_t { dtype, dims, group, queries, band, keys, lengths, sinks, softcap, first_k, exact };
    static constexpr std::pair<int, int> kDims[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}, {40, 72}};
    constexpr int kGroups[] = {1, 4, 12};
    constexpr int kQueries[] = {1, 40, 512};  // a tile of a consumer, more, and so many that nothing is shared out
    enum Band { full, causal, window, chunk };
    enum Keys { dense, cache_rows, pages, prefixes };
    enum Lengths { equal, used, packed, used_both };
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    std::vector<Variant> result;
    std::vector<Row> all = pairwise({2, 5, 3, 3, 4, 3, 4, 2, 2, 2, 2}, [](const Row&) { return true; });
    // Prefixes that sequences share, of which nothing is hidden, with few queries that are all used; not of wide heads.
    for (Row& row :
         pairwise({2, 5, 3, 2, 2, 1, 3, 2, 2, 1, 2}, [](const Row& r) { return kDims[r[dims]].first != 256; })) {
        row[keys] = prefixes;
        all.push_back(row);
    }
    for (const Row& row : all) {
        Problem p;
        p.dtype = row[dtype] == 0 ? DType::bf16 : DType::fp16;
        p.batch = 16;
        p.kv_heads = 8;
        p.heads = 8 * kGroups[row[group]];
        p.seqlen_q = kQueries[row[queries]];
        p.seqlen_k = 8192;
        p.head_dim = kDims[row[dims]].first;
        p.head_dim_v = kDims[row[dims]].second;
        p.scale = 0.125f;
        if (row[band] != full) p.window_right = 0;
        if (row[band] == window) p.window_left = 1000;
        if (row[band] == chunk) p.attention_chunk = 512;
        p.cache = row[keys] != dense;
        p.page_size = row[keys] >= pages ? 16 : 0;
        p.prefix_groups = row[keys] == prefixes ? 4 : 0;
        p.pages = 16 * 512;
        p.packed = row[lengths] == packed;
        p.total_q = p.batch * p.seqlen_q;
        p.total_k = p.batch * p.seqlen_k;
        p.used_q = row[lengths] == used_both;
        if (row[sinks] == 1) p.sinks = DType::fp32;
        p.softcap = row[softcap] == 1 ? 30.0f : 0.0f;
        p.first_k = row[first_k] == 1;
        p.exact_max = row[exact] == 1;
        gpu::Access access = gpu::contiguous_access(p);
        access.seqused = row[lengths] == used || row[lengths] == used_both;
        const gpu::Plan plan = gpu::plan_forward(p, access, device);
        if (plan.main().config.kernel != Kernel::forward_sm90) continue;  // the general kernel has a list of its own
        for (const gpu::Launch& launch : plan.launches) result.push_back({device.architecture, launch.config});
    }
    return result;
}

}  // namespace flashtile::variants
