// quantize.cpp: see quantize.h.
#include "cuda/plan/quantize.h"

#include <algorithm>

#include "cuda/plan/candidate.h"
#include "cuda/plan/limits.h"

namespace flashtile::gpu {
namespace {

constexpr int kRows = 64;  // of a block without a scale of its own

// Whether 16-byte loads bring 16-bit elements, which is worth all of a multiprocessor's registers.
bool is_fast(const KernelConfig& c) {
    return c.vector_bytes == 16 && size_of(c.element) == 2;
}

// Enough warps for a block in registers, no more than it has rows for. Where rows are rotated, a lane has half as much
// of a head, and so the same rows of two heads.
KernelConfig config_of(const QuantizeProblem& p, int vector_bytes) {
    KernelConfig c;
    c.kernel = Kernel::quantize;
    c.element = element_of(p.dtype);
    c.head_dim = static_cast<int>(p.head_dim);
    c.vector_bytes = vector_bytes;
    c.Br = p.scale_block != 0 ? static_cast<int>(p.scale_block) : kRows;
    c.warps = 4;
    const int most_warps = is_fast(c) ? 16 : 8, kept = is_fast(c) && p.pairs != 0 ? kQuantizeKept / 2 : kQuantizeKept;
    while (c.warps < most_warps && quantize_elements(c) > kept) c.warps *= 2;
    // A block that fits no registers is read twice; its rows of many columns have twice the registers of 16 warps'.
    if (quantize_elements(c) > kQuantizeKept) c.warps = 8;
    while (c.warps * 32 / quantize_row_lanes(c) > c.Br) c.warps /= 2;
    if (is_fast(c) && quantize_elements(c) <= kQuantizeKept) c.blocks_per_sm = most_warps / c.warps;
    return c;
}

// All units of work: a block of rows of one head, or of as many as a thread block does at a time.
std::int64_t units_of(const QuantizeProblem& p, std::int64_t scale_blocks, int heads) {
    return checked_blocks(quantize_blocks(p, scale_blocks) * blocks_of(p.heads, heads) * (p.packed ? 1 : p.batch));
}

// A thread block does several units, and loads one while it does another, as long as there are thread blocks enough.
// Rotated rows of all heads have the same angles, which then lie in the cache.
int shares_of(const QuantizeProblem& p, const KernelConfig& c, std::int64_t units, const DeviceFacts& device) {
    constexpr int kTurns = 3;  // that a multiprocessor takes at least
    const int most = p.pairs != 0 ? 8 : 4;
    int shares = 1;
    while (shares < most && units / (2 * shares) >= std::int64_t{kTurns} * device.multiprocessors * c.blocks_per_sm)
        shares *= 2;
    return shares;
}

}  // namespace

int quantize_vector_bytes(const QuantizeProblem& p, const QuantizeOperands& x) {
    const std::int64_t size = size_of(p.dtype);
    // what vectors of e4m3 numbers are aligned to, in bytes of as many elements of x
    std::uint64_t all = reinterpret_cast<std::uintptr_t>(x.x.data);
    const auto add = [&](std::int64_t elements) { all |= static_cast<std::uint64_t>(elements * size); };
    for (const std::int64_t elements : {p.head_dim, p.rotary_begin, p.pairs}) add(elements);
    add(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.quantized.data) % 16));
    for (const Operand* t : {&x.x, &x.quantized})
        for (const std::int64_t stride : {t->stride_batch, t->stride_row, t->stride_head}) add(stride);
    return std::max(alignment_of(all), static_cast<int>(size));
}

std::int64_t quantize_blocks(const QuantizeProblem& p, std::int64_t scale_blocks) {
    const int rows = p.scale_block != 0 ? static_cast<int>(p.scale_block) : kRows;
    if (!p.packed) return blocks_of(p.seqlen, rows);
    return p.scale == ScaleKind::block ? scale_blocks : p.total / rows + p.batch;
}

QuantizePlan plan_quantize(const QuantizeProblem& p, int vector_bytes, std::int64_t scale_blocks,
                           const DeviceFacts& device) {
    check_architecture(device);
    const KernelConfig c = config_of(p, vector_bytes);
    const std::int64_t units = units_of(p, scale_blocks, quantize_heads(c));
    QuantizePlan plan{.shares = shares_of(p, c, units, device)};
    const Launch all = {.config = c,
                        .shared_memory = shared_bytes(c),
                        .blocks = blocks_of(units, plan.shares),
                        .why = "a block of rows in a thread block's registers"};
    const Launch scales = {.config = c, .blocks = device.multiprocessors, .why = "a thread a scale"};
    const auto add = [&](QuantizeStep step, const Launch& launch) {
        plan.steps.push_back(step);
        plan.launches.push_back(launch);
    };
    if (!p.scale_given && p.scale != ScaleKind::block) {
        add(QuantizeStep::clear_scales, scales);
        add(QuantizeStep::find_largest, all);
        add(QuantizeStep::finish_scales, scales);
    }
    add(QuantizeStep::quantize, all);
    return plan;
}

Launch plan_dequantize(const QuantizeProblem& p, int vector_bytes, std::int64_t scale_blocks,
                       const DeviceFacts& device) {
    check_architecture(device);
    KernelConfig c = config_of(p, vector_bytes);
    c.kernel = Kernel::dequantize;
    return {.config = c, .blocks = units_of(p, scale_blocks, 1), .why = "a block of rows a thread block"};
}

}  // namespace flashtile::gpu
