// quantize.cpp: see quantize.h.
#include "cuda/plan/quantize.h"

#include <algorithm>

#include "cuda/plan/candidate.h"
#include "cuda/plan/limits.h"

namespace flashtile::gpu {
namespace {

constexpr int kRows = 64;  // of a block without a scale of its own
constexpr int kMostWarps = 16;

KernelConfig config_of(const QuantizeProblem& p, int vector_bytes) {
    KernelConfig c;
    c.kernel = Kernel::quantize;
    c.element = element_of(p.dtype);
    c.head_dim = static_cast<int>(p.head_dim);
    c.vector_bytes = vector_bytes;
    c.Br = p.scale_block != 0 ? static_cast<int>(p.scale_block) : kRows;
    // enough warps for a block in registers, of whole vectors in half of them, no more than it has rows for
    c.warps = 4;
    constexpr int kKept = 64, kVector = 16;
    while (c.warps < kMostWarps && quantize_elements(c) > (vector_bytes == kVector ? kKept / 2 : kKept)) c.warps *= 2;
    // A block that fits no registers is read twice; its rows of many columns have twice the registers of 16 warps'.
    if (quantize_elements(c) > kKept) c.warps = 8;
    while (c.warps * 32 / quantize_row_lanes(c) > c.Br) c.warps /= 2;
    return c;
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
    const std::int64_t blocks = checked_blocks(quantize_blocks(p, scale_blocks) * p.heads * (p.packed ? 1 : p.batch));
    const Launch all = {.config = c,
                        .shared_memory = shared_bytes(c),
                        .blocks = blocks,
                        .why = "a block of rows in a thread block's registers"};
    const Launch scales = {.config = c, .blocks = device.multiprocessors, .why = "a thread a scale"};
    QuantizePlan plan;
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
    return {.config = c,
            .blocks = checked_blocks(quantize_blocks(p, scale_blocks) * p.heads * (p.packed ? 1 : p.batch)),
            .why = "a block of rows a thread block"};
}

}  // namespace flashtile::gpu
