// beside_attention.cpp: the kernels that stand beside attention, as variants that must compile: for an architecture of
// each kind, merge with every pair of types, and each type with rows wide and narrow and loads of every width.
#include <algorithm>
#include <utility>

#include "cuda/plan/append_kv.h"
#include "cuda/plan/merge.h"
#include "cuda/variants/pairwise.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {
namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
constexpr std::pair<int, int> kRows[] = {{128, 16}, {72, 8}, {512, 4}, {57, 2}};  // their width, and a load's bytes

}  // namespace

std::vector<Variant> beside_attention() {
    std::vector<Variant> result;
    for (const char* name : {"A100-80", "H200", "RTX 5090"}) {
        const gpu::DeviceFacts& device = gpu::known_device(name);
        for (const Row& row : pairwise({3, 3, 4}, [](const Row&) { return true; })) {
            const auto& [head_dim, vector_bytes] = kRows[row[2]];
            const MergeProblem p{kTypes[row[0]], kTypes[row[1]], 2, 4, 1024, 8, head_dim};
            const int bytes = std::max(vector_bytes, static_cast<int>(size_of(p.dtype)));
            result.push_back({device.architecture, gpu::plan_merge(p, bytes, device).config});
        }
        Problem mask;
        mask.batch = mask.heads = mask.kv_heads = 1;
        mask.seqlen_q = mask.seqlen_k = 1024;
        result.push_back({device.architecture, gpu::plan_dropout_mask(mask, device).main().config});
        for (const DType dtype : kTypes)
            for (int vector_bytes = static_cast<int>(size_of(dtype)); vector_bytes <= 16; vector_bytes *= 2) {
                AppendProblem p;
                p.dtype = dtype;
                result.push_back({device.architecture, gpu::plan_append(p, vector_bytes, device).config});
            }
    }
    return result;
}

}  // namespace flashtile::variants
