// serving.cpp: the kernels of split_forward_sm80 and their combine, as variants that must compile: for an
// A100 and Hopper, each thing that serving asks for with each head dimension and each type, few queries and many. A
// thing and a dimension that stand together with one type on the A100 have the other on Hopper. Then what backward has
// of it: chunks and the gradients of sinks.
#include <iterator>
#include <tuple>
#include <utility>

#include "cuda/plan/candidate.h"
#include "cuda/variants/pairwise.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {
namespace {

struct Request {
    const char* name;
    void (*make)(Problem&, gpu::Access&);
};

constexpr Request kRequests[] = {
    {"one query", [](Problem&, gpu::Access&) {}},
    {"pages", [](Problem& p, gpu::Access& a) { p.page_size = 16, p.window_right = 0, a.seqused = true; }},
    {"packed queries",
     [](Problem& p, gpu::Access&) {
         p.page_size = 16, p.packed = true, p.seqlen_q = 300, p.total_q = 1200, p.window_right = 0;
     }},
    {"a tree", [](Problem& p, gpu::Access& a) { p.tree_mask = true, p.seqlen_q = 16, a.seqused = true; }},
    {"a tree at positions of its own",
     [](Problem& p, gpu::Access& a) {
         p.tree_mask = p.positions = p.alibi = true, p.page_size = 64, p.seqlen_q = 16, a.seqused = true;
         p.window_left = 300, p.window_right = 0, p.attention_chunk = 512;
     }},
    {"chunks and sinks",
     [](Problem& p, gpu::Access&) {
         p.attention_chunk = 512, p.sinks = DType::fp32, p.seqlen_q = 700, p.window_right = 0;
     }},
    {"left padding and windows",
     [](Problem& p, gpu::Access&) { p.first_k = p.used_q = true, p.window_left = 300, p.sinks = p.dtype; }},
    {"every option",
     [](Problem& p, gpu::Access& a) {
         p.softcap = 20.0f, p.alibi = p.mask = true, p.bias = p.dtype, p.dropout_threshold = 100, a.seqused = true;
     }},
    {"batch_invariant", [](Problem& p, gpu::Access&) { p.batch_invariant = p.exact_max = true, p.seqlen_q = 4; }},
};

void add_launches(const gpu::Plan& plan, int architecture, std::vector<Variant>& result) {
    for (const gpu::Launch& launch : plan.launches) result.push_back({architecture, launch.config});
}

void add_backward(const gpu::DeviceFacts& device, DType dtype, std::vector<Variant>& result) {
    for (const int head_dim : {64, 128, 256})
        for (const bool packed : {false, true}) {
            Problem p;
            p.dtype = dtype;
            p.batch = p.heads = p.kv_heads = 4;
            p.seqlen_q = p.seqlen_k = p.total_q = p.total_k = 4096;
            p.head_dim = p.head_dim_v = head_dim;
            p.scale = 0.125f;
            p.window_right = 0;
            p.attention_chunk = 512;
            p.sinks = DType::fp32;
            p.packed = packed;
            gpu::Access access = gpu::contiguous_access(p);
            access.dsinks = true;
            add_launches(gpu::plan_backward(p, access, device), device.architecture, result);
        }
}

}  // namespace

std::vector<Variant> serving() {
    std::vector<Variant> result;
    for (const char* name : {"A100-80", "H200"})
        for (const DType dtype : {DType::fp32, DType::bf16}) add_backward(gpu::known_device(name), dtype, result);
    constexpr DType kTypes[] = {DType::fp32, DType::bf16};
    constexpr std::pair<int, int> kHeadDims[] = {{128, 128}, {576, 512}, {40, 72}};
    const std::vector<int> choices = {2, 3, static_cast<int>(std::size(kRequests))};
    for (const Row& row : pairwise(choices, [](const Row&) { return true; }))
        for (const bool hopper : {false, true}) {
            Problem p;
            p.dtype = kTypes[hopper ? 1 - row[0] : row[0]];
            p.batch = 4;
            p.heads = 8;
            p.kv_heads = 2;
            p.seqlen_q = 1;
            p.seqlen_k = 8192;
            p.cache = true;
            p.pages = 4096;
            std::tie(p.head_dim, p.head_dim_v) = kHeadDims[row[1]];
            p.scale = 0.125f;
            gpu::Access access = gpu::contiguous_access(p);
            kRequests[row[2]].make(p, access);
            const gpu::DeviceFacts& device = gpu::known_device(hopper ? "H200" : "A100-80");
            const gpu::Question question = gpu::question_of(p, access, device);
            const auto main = gpu::split_forward_sm80.main(question);
            if (!main) continue;  // too wide for this GPU
            gpu::Plan plan;
            gpu::split_forward_sm80.complete(question, *main, plan);
            add_launches(plan, device.architecture, result);
        }
    return result;
}

}  // namespace flashtile::variants
