// append_kv.cpp: see append_kv.h.
#include "cuda/plan/append_kv.h"

#include <algorithm>

#include "cuda/plan/candidate.h"
#include "cuda/plan/limits.h"

namespace flashtile::gpu {

int append_vector_bytes(const AppendProblem& p, const AppendOperands& x) {
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::uint64_t>(elements * size_of(p.dtype)); };
    std::uint64_t all = bytes(p.head_dim) | bytes(p.head_dim_v) | bytes(p.rotary_begin) | bytes(p.pairs);
    for (const Operand* t : {&x.k, &x.v, &x.q, &x.q_out, &x.k_cache, &x.v_cache})
        all |= bytes(t->stride_batch) | bytes(t->stride_row) | bytes(t->stride_head);
    for (const Operand* t : {&x.k, &x.v, &x.q, &x.q_out}) all |= reinterpret_cast<std::uintptr_t>(t->data);
    for (const Operand* t : {&x.k_cache, &x.v_cache}) {  // a vector of e4m3 has as many elements, which are bytes
        const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(t->data);
        all |= p.quantizes() ? bytes(static_cast<std::int64_t>(address % 16)) : address;
    }
    return std::max(alignment_of(all), static_cast<int>(size_of(p.dtype)));
}

Launch plan_append(const AppendProblem& p, int vector_bytes, const DeviceFacts& device) {
    check_architecture(device);
    KernelConfig c;
    c.kernel = Kernel::append_kv;
    c.element = element_of(p.dtype);
    c.converts_kv = p.quantizes();
    c.vector_bytes = vector_bytes;
    c.warps = 4;
    return {.config = c,
            .blocks = checked_blocks(blocks_of(p.items(), c.warps)),
            .why = "a head of a row a warp",
            .early = true};
}

std::vector<KernelConfig> append_configs_for(const Problem& problem, const DeviceFacts& device) {
    AppendProblem append;
    append.dtype = problem.dtype;
    append.head_dim = problem.head_dim;
    append.head_dim_v = problem.head_dim_v;
    std::vector<KernelConfig> configs;
    for (const std::int64_t pairs : {std::int64_t{0}, problem.head_dim / 2}) {  // nothing rotated, or all
        append.pairs = pairs;
        configs.push_back(plan_append(append, append_vector_bytes(append, {}), device).config);
    }
    return configs;
}

}  // namespace flashtile::gpu
