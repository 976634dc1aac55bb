// launch.cpp: Problem and Operands to KernelParams, and the launch itself.
#include "cuda/launch.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "core/device_operands.h"
#include "cuda/jit/kernels.h"
#include "cuda/jit/render.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/quantize.h"

namespace flashtile::gpu {
namespace {

constexpr double kLog2e = 1.4426950408889634;

DeviceFunctionTensor function_tensor_of(const functions::FunctionTensor& x) {
    static_assert(std::size(DeviceFunctionTensor{}.shape) == functions::kMostDimensions);
    static_assert(std::size(KernelParams{}.function_tensors) == functions::kMostTensors);
    DeviceFunctionTensor tensor{
        .data = x.data, .shape = {1, 1, 1, 1}, .stride = {}, .near_shape = {}, .near_stride = {}};
    std::copy_n(x.shape, x.rank, tensor.shape);
    std::ranges::copy(x.stride, tensor.stride);
    for (int d = 0; d < functions::kMostDimensions; ++d) {
        tensor.near_shape[d] = static_cast<int>(tensor.shape[d]);
        tensor.near_stride[d] = tensor.shape[d] > 1 ? static_cast<int>(x.stride[d]) : 0;
    }
    return tensor;
}

DeviceBlockList block_list_of(const BlockList& x) {
    DeviceBlockList list{
        .counts = x.counts, .indices = x.indices, .room = x.room, .count_stride = {}, .index_stride = {}};
    std::ranges::copy(x.count_stride, list.count_stride);
    std::ranges::copy(x.index_stride, list.index_stride);
    return list;
}

DeviceTensorGradient tensor_gradient_of(const functions::TensorGradient& x) {
    DeviceTensorGradient gradient{.data = x.data, .stride = {}};
    std::ranges::copy(x.stride, gradient.stride);
    return gradient;
}

// Scales of blocks of q are those of query heads.
DeviceScales scales_of(const Scales& x, bool query_heads) {
    return {x.data, x.stride_batch, x.stride_head, x.stride_block, query_heads ? 1 : 0};
}

}  // namespace

KernelParams params_of(const Plan& plan, const Problem& p, const Operands& x) {
    KernelParams k{};
    k.q = tensor_of(x.q);
    k.k = tensor_of(x.k);
    k.v = tensor_of(x.v);
    k.out = tensor_of(x.out);
    k.lse = tensor_of(x.lse);
    k.slopes = tensor_of(x.slopes);
    k.bias = tensor_of(x.bias);
    k.mask = tensor_of(x.mask);
    k.dout = tensor_of(x.dout);
    k.dq = tensor_of(x.dq);
    k.dk = tensor_of(x.dk);
    k.dv = tensor_of(x.dv);
    k.dlse = tensor_of(x.dlse);
    k.dbias = tensor_of(x.dbias);
    k.cu_seqlens_q = lengths_of(x.cu_seqlens_q);
    k.cu_seqlens_k = lengths_of(x.cu_seqlens_k);
    k.seqused_k = lengths_of(x.seqused_k);
    k.batch = static_cast<int>(p.batch);
    k.heads = static_cast<int>(p.heads);
    k.kv_heads = static_cast<int>(p.kv_heads);
    k.group = static_cast<int>(p.group());
    k.seqlen_q = p.seqlen_q;
    k.seqlen_k = p.seqlen_k;
    k.total_q = p.total_q;
    k.total_k = p.total_k;
    k.head_dim_v = p.head_dim_v;
    k.bias_batch = x.bias_batch;
    k.bias_heads = x.bias_heads;
    k.bias_rows = x.bias_rows;
    k.bias_cols = x.bias_cols;
    k.scale = p.scale;
    // The largest scales stay finite: infinity times a score of 0 would be NaN.
    constexpr double kLargest = std::numeric_limits<float>::max();
    k.scale_log2 = static_cast<float>(std::clamp(static_cast<double>(p.scale) * kLog2e, -kLargest, kLargest));
    k.natural_unit =
        k.scale_log2 != 0.0f ? static_cast<double>(p.scale) / static_cast<double>(k.scale_log2) : 1.0 / kLog2e;
    k.softcap = p.softcap;
    k.top_left = p.top_left ? 1 : 0;
    k.diagonal = p.diagonal;
    k.window_left = p.window_left;
    k.window_right = p.window_right;
    k.origin_b = p.origin_b;
    k.origin_h = p.origin_h;
    k.origin_i = p.origin_i;
    k.origin_j = p.origin_j;
    k.diagonals = reinterpret_cast<const Index*>(x.diagonals);
    k.origins_i = reinterpret_cast<const Index*>(x.origins_i);
    k.origins_j = reinterpret_cast<const Index*>(x.origins_j);
    k.dropout_threshold = p.dropout_threshold;
    k.seed = x.seed;
    k.offset = x.offset;
    k.seed_ptr = reinterpret_cast<const unsigned long long*>(x.seed_ptr);
    k.offset_ptr = reinterpret_cast<const unsigned long long*>(x.offset_ptr);
    k.rounds = plan.rounds;
    k.unit_rows = plan.unit_rows;
    k.row_flip = plan.row_flip;
    k.units = plan.units;
    k.seqused_q = lengths_of(x.seqused_q);
    k.first_k = lengths_of(x.first_k);
    k.cache_batch_idx = lengths_of(x.cache_batch_idx);
    k.block_table = x.block_table;
    k.block_table_stride = x.block_table_stride;
    k.cache_rows = p.pages;
    k.page_size = static_cast<int>(p.page_size);
    // positions are less than 2^31, and a longer chunk hides no more than one of that many
    k.attention_chunk = std::min<std::int64_t>(p.attention_chunk, std::numeric_limits<std::int32_t>::max());
    k.tree_mask = tensor_of(x.tree_mask);
    k.sinks = tensor_of(x.sinks);
    k.sinks_fp32 = x.sinks.dtype == DType::fp32 ? 1 : 0;
    k.split_rule = plan.split_rule;
    k.most_splits = plan.most_splits;
    k.part_queries = plan.part_queries;
    k.part_rows = plan.part_rows;
    k.share_blocks = plan.share_blocks;
    k.rounded_shares = plan.rounded_shares ? 1 : 0;
    k.fold_groups = plan.fold_groups;
    k.page_box = plan.page_box;
    k.block_map_batch = plan.block_map_batch;
    k.block_map_heads = plan.block_map_heads;
    k.section_heads = plan.section_heads;
    k.positions = x.positions;
    k.positions_stride = x.positions_stride;
    k.prefix_groups = lengths_of(x.prefix_groups);
    k.prefix_lengths = lengths_of(x.prefix_lengths);
    k.prefixes = p.prefix_groups;
    k.cu_seqlens_k_new = lengths_of(x.append.cu_seqlens_k_new);
    k.seqlen_k_new = p.append.seqlen_k;
    k.dsinks = tensor_of(x.dsinks);
    k.dsinks_fp32 = x.dsinks.dtype == DType::fp32 ? 1 : 0;
    k.partial_blocks = block_list_of(x.partial_blocks);
    k.full_blocks = block_list_of(x.full_blocks);
    k.block_q = static_cast<int>(p.block_q);
    k.block_k = static_cast<int>(p.block_k);
    k.list_batch = static_cast<int>(p.list_batch);
    k.list_heads = static_cast<int>(p.list_heads);
    k.q_scale = scales_of(x.q_scale, p.q_scale == ScaleKind::block);
    k.k_scale = scales_of(x.k_scale, false);
    k.v_scale = scales_of(x.v_scale, false);
    k.scale_shift = p.scale_block == 0 ? 0 : std::countr_zero(static_cast<std::uint64_t>(p.scale_block));
    std::ranges::transform(x.function_tensors, k.function_tensors, function_tensor_of);
    std::ranges::transform(x.dtensors, k.dtensors, tensor_gradient_of);
    return k;
}

MergeParams params_of(const MergeProblem& p, const MergeOperands& x) {
    MergeParams k{};
    k.outs = tensor_of(x.outs);
    k.lses = tensor_of(x.lses);
    k.out = tensor_of(x.out);
    k.lse = tensor_of(x.lse);
    k.outs_stride_part = x.outs_stride_part;
    k.lses_stride_part = x.lses_stride_part;
    k.parts = p.parts;
    k.seqlen = static_cast<unsigned>(p.seqlen);
    k.heads = static_cast<unsigned>(p.heads);
    k.rows = static_cast<unsigned>(p.rows());
    return k;
}

QuantizeParams params_of(const QuantizeProblem& p, const QuantizeOperands& x) {
    QuantizeParams k{};
    k.x = tensor_of(x.x);
    k.quantized = tensor_of(x.quantized);
    k.scale = x.scale.data;
    k.scale_stride_batch = x.scale.stride_batch;
    k.scale_stride_head = x.scale.stride_head;
    k.scale_stride_block = x.scale.stride_block;
    const bool one_batch = p.scale == ScaleKind::tensor || (p.packed && p.scale_block != 0);
    k.scale_batch = one_batch ? 1 : p.batch;
    k.scale_heads = p.scale_heads;
    k.scale_blocks = x.scale.blocks;
    k.makes_scales = !p.scale_given && p.scale == ScaleKind::block ? 1 : 0;
    k.group = static_cast<int>(p.group());
    k.cu_seqlens = lengths_of(x.cu_seqlens);
    k.rotary_offsets = lengths_of(x.rotary_offsets);
    k.positions = lengths_of(x.positions);
    k.batch = p.batch;
    k.heads = p.heads;
    k.seqlen = p.seqlen;
    k.total = p.total;
    k.blocks = quantize_blocks(p, x.scale.blocks);
    k.cos = x.cos;
    k.sin = x.sin;
    k.cos_stride = x.cos_stride;
    k.sin_stride = x.sin_stride;
    k.table_rows = p.positions;
    k.pairs = static_cast<int>(p.pairs);
    k.rotary_begin = static_cast<int>(p.rotary_begin);
    k.interleaved = p.interleaved ? 1 : 0;
    k.table_element = p.pairs != 0 ? element_of(p.table_dtype) : Element::fp32;
    k.hadamard = p.hadamard ? 1 : 0;
    k.hadamard_seed = x.hadamard_seed;
    return k;
}

void set_region(KernelParams& params, Region name, CUdeviceptr address) {
    const auto set = [&]<class T>(T*& pointer) { pointer = reinterpret_cast<T*>(address); };
    switch (name) {
        case Region::ticket:
            return set(params.ws_ticket);
        case Region::lse:
            return set(params.ws_lse);
        case Region::lse_natural:
            return set(params.ws_lse_natural);
        case Region::D:
            return set(params.ws_D);
        case Region::dq:
            return set(params.ws_dq);
        case Region::turn:
            return set(params.ws_turn);
        case Region::part_o:
            return set(params.ws_part_o);
        case Region::part_ml:
            return set(params.ws_part_ml);
        case Region::first_unit:
            return set(params.ws_first_unit);
        case Region::block_map:
            return set(params.ws_block_map);
        case Region::block_kinds:
            return set(params.ws_block_kinds);
        case Region::rotated_q:
            return;  // it is q
    }
}

void launch(const Launch& launch, const void* params, const Device& device, CUstream stream) {
    if (launch.blocks == 0) return;
    const LoadedKernel& loaded = kernel_for(launch.config, device, launch.shared_memory);
    void* arguments[] = {const_cast<void*>(params)};
    const auto blocks = static_cast<unsigned>(launch.blocks), threads = static_cast<unsigned>(launch.config.warps * 32);
    const auto shared_memory = static_cast<unsigned>(launch.shared_memory);
    CUresult result = CUDA_SUCCESS;
    if (launch.early && device.facts().architecture >= 90) {  // earlier architectures have no such launches
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        const CUlaunchConfig config = {blocks, 1, 1, threads, 1, 1, shared_memory, stream, &attribute, 1};
        result = driver().cuLaunchKernelEx(&config, loaded.function, arguments, nullptr);
    } else {
        result = driver().cuLaunchKernel(loaded.function, blocks, 1, 1, threads, 1, 1, shared_memory, stream, arguments,
                                         nullptr);
    }
    if (result != CUDA_SUCCESS) driver().check(result, "launching the kernel of " + to_string(launch.config));
}

}  // namespace flashtile::gpu
