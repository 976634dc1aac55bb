// plan.cpp: tables to plans.
#include "cuda/plan.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>
#include <span>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "cuda/choice.h"
#include "cuda/tensor_map.h"
#include "cuda/tiles/sm80.h"
#include "cuda/tiles/sm90.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() - 1024;
constexpr std::int64_t kWidestBackward = 256;
constexpr std::int64_t kShort = 2048, kLong = 4096;    // queries and keys at which sm90's tiles change
constexpr std::int64_t kFew = 64;                      // queries of a head that fill at most half of a tile on sm90
constexpr std::int64_t kMostOfGroup = 64;              // heads that share a tile: a consumer's rows are whole queries
constexpr float kLeastCap = 1e-30f, kMostCap = 1e30f;  // softcap in units of scale
constexpr std::int64_t kMostUnits = std::int64_t{1} << 40;  // no size of the workspace overflows

Element element_of(DType dtype) {
    return dtype == DType::fp32 ? Element::fp32 : dtype == DType::fp16 ? Element::fp16 : Element::bf16;
}

[[noreturn]] void unsupported(const std::string& message) {
    throw Error(FLASHTILE_UNSUPPORTED, message);
}

void check_sizes(const Problem& p, const DeviceFacts& device) {
    if (device.architecture < 80)
        unsupported("device is '" + device.name + "' of compute capability " +
                    std::to_string(device.architecture / 10) + "." + std::to_string(device.architecture % 10) +
                    ", supported is 8.0 and newer");
    for (const auto& [name, rows] : {std::pair("seqlen_q", p.seqlen_q), std::pair("seqlen_k", p.seqlen_k)})
        if (rows > kMostRows)
            unsupported(std::string(name) + " is " + std::to_string(rows) + ", supported on CUDA is at most " +
                        std::to_string(kMostRows));
    for (const auto& [name, count] : {std::pair("batch", p.batch), std::pair("heads", p.heads)})
        if (count > kMostRows)
            unsupported(std::string(name) + " is " + std::to_string(count) + ", supported on CUDA is at most " +
                        std::to_string(kMostRows));
    if (p.origin_i % 16 != 0 || p.origin_j % 16 != 0)
        unsupported("the origin of a shard is (" + std::to_string(p.origin_i) + ", " + std::to_string(p.origin_j) +
                    "), supported on CUDA are multiples of 16");
}

// What every kernel of a problem shares.
KernelConfig common(const Problem& p, const Access& access) {
    KernelConfig c;
    c.element = element_of(p.dtype);
    c.head_dim = static_cast<int>(p.head_dim);
    c.head_dim_v = static_cast<int>(p.head_dim_v);
    c.vector_bytes = access.vector_bytes;
    c.band = p.window_left >= 0 || p.window_right >= 0;
    c.window = p.window_left >= 0;
    c.packed = p.packed;
    c.seqused = access.seqused;
    c.softcap = p.softcap != 0.0f;
    c.alibi = p.alibi;
    c.bias = p.bias == DType::unset                            ? BiasElement::none
             : p.bias == DType::fp32 && p.dtype != DType::fp32 ? BiasElement::fp32
                                                               : BiasElement::same;
    c.mask = p.mask;
    c.dropout = p.dropout_threshold != 0;
    // softcap / scale is a factor in fp32
    const float cap = p.softcap / p.scale;
    c.scale_first = c.alibi || c.bias != BiasElement::none || !(p.scale > 0.0f) ||
                    (c.softcap && !(cap > kLeastCap && cap < kMostCap));
    return c;
}

// How many of a block's warps lie below each other on results of `rows` and each of `columns`, so that they read the
// least of its factors; 0 where the warps cannot share it.
int warps_down(int rows, std::initializer_list<int> columns, int warps) {
    int best = 0, least = std::numeric_limits<int>::max();
    for (int down = 1; down <= warps; down *= 2) {
        const int across = warps / down;
        bool fits = rows % (down * 16) == 0;
        int read = 0;
        for (const int count : columns) {
            fits = fits && count % (across * 16) == 0;
            read += rows / down + count / across;
        }
        if (fits && read < least) best = down, least = read;
    }
    return best;
}

bool place_warps(KernelConfig& c) {
    if (c.kernel == Kernel::forward_sm90) return c.group_rows == 1 || output_parts(c) > 0;
    if (c.kernel == Kernel::backward_sm90) {
        c.warps_dq = c.Br == 64 ? 4 : 8;
        return true;
    }
    if (c.kernel == Kernel::forward) return c.Br % (c.warps * 16) == 0;
    const int d = padded(c, c.head_dim), dv = padded(c, c.head_dim_v);
    c.warps_s = warps_down(c.Br, {c.Bc}, c.warps);
    c.warps_dkv = warps_down(c.Bc, {d, dv}, c.warps);
    c.warps_dq = warps_down(c.Br, {d}, c.warps);
    return c.warps_s != 0 && c.warps_dkv != 0 && c.warps_dq != 0;
}

// The first row of the table that serves, with at most `most_queries` in its tile.
std::optional<PlannedKernel> find(const KernelConfig& c, std::span<const Tile> table, int widest,
                                  const DeviceFacts& device, int most_queries = std::numeric_limits<int>::max()) {
    for (const Tile& tile : table) {
        if (tile.widest < widest || tile.Br > most_queries) continue;
        if (auto kernel = with_tile(c, tile, device)) return kernel;
    }
    return std::nullopt;
}

PlannedKernel choose(const KernelConfig& c, std::span<const Tile> table, int widest, const DeviceFacts& device,
                     int most_queries = std::numeric_limits<int>::max()) {
    if (const auto kernel = find(c, table, widest, device, most_queries)) return *kernel;
    unsupported("head_dim is " + std::to_string(c.head_dim) + " and head_dim_v " + std::to_string(c.head_dim_v) +
                ", and " + device.name + " has " + std::to_string(device.shared_memory_per_block) +
                " bytes of shared memory a block: too little for this " +
                (c.kernel == Kernel::forward || c.kernel == Kernel::forward_sm90 ? "forward" : "backward") +
                " pass; smaller head dimensions or the CPU do");
}

std::int64_t blocks_of(std::int64_t rows, int tile) {
    return (rows + tile - 1) / tile;
}

std::int64_t checked_blocks(std::int64_t blocks) {
    if (blocks > kMostBlocks)
        unsupported("the problem takes " + std::to_string(blocks) + " thread blocks, supported is at most " +
                    std::to_string(kMostBlocks));
    return blocks;
}

std::int64_t query_blocks(const Problem& p, int Br) {
    return checked_blocks(blocks_of(p.seqlen_q, Br) * p.heads * p.batch);
}

// Hopper's forward: rows of a tile for each query, where the heads of a group share it.
int group_rows(const KernelConfig& c, const Problem& p) {
    const bool alike = !c.packed && !c.alibi && !c.dropout && !c.has_bias_or_mask();
    if (!alike || p.seqlen_q > kFew || p.group() > kMostOfGroup) return 1;
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group())));
}

// The first thing that keeps a problem from Hopper's kernels, and so for the general ones; "": nothing does.
std::string_view why_not_sm90(const KernelConfig& c, const Problem& p, const Access& access,
                              const DeviceFacts& device) {
    if (device.architecture != 90) return "the GPU is not of compute capability 9.0";
    if (c.element == Element::fp32) return "wgmma would round fp32 to TF32";
    if (std::max(c.head_dim, c.head_dim_v) > 256) return "a head dimension over 256";
    if (!access.tensor_maps || access.vector_bytes != 16)
        return "the copy engine wants addresses and strides in multiples of 16 bytes, and no broadcast";
    if (p.batch_invariant) return "batch_invariant: a row's bits may not depend on where tensors lie";
    return "";
}

std::string_view why_not_forward_sm90(const KernelConfig& c, const Problem& p, const Access& access,
                                      const DeviceFacts& device) {
    if (const std::string_view why = why_not_sm90(c, p, access, device); !why.empty()) return why;
    if (!c.has_bias_or_mask()) return "";
    const bool many = c.bias == BiasElement::fp32 || (c.mask && c.bias != BiasElement::none);
    if (many && std::max(c.head_dim, c.head_dim_v) > 192)
        return "a head dimension over 192, and a bias in fp32 or with a mask, which take more registers";
    return "";
}

std::string_view why_not_backward_sm90(const KernelConfig& c, const Problem& p, const Access& access,
                                       const DeviceFacts& device) {
    if (const std::string_view why = why_not_sm90(c, p, access, device); !why.empty()) return why;
    if (c.mask) return "a boolean mask";
    if (c.bias != BiasElement::none) return "a bias";
    if (c.softcap) return "softcap";
    if (c.alibi) return "ALiBi";
    if (c.scale_first) return "a scale that is not positive";
    if (c.dropout) return "dropout";
    const int d = chunk_columns(c.head_dim), dv = chunk_columns(c.head_dim_v);
    if (dv > d && dv <= 128) return "head_dim_v wider than head_dim";
    return "";
}

}  // namespace

std::optional<PlannedKernel> with_tile(KernelConfig c, const Tile& tile, const DeviceFacts& device) {
    c.Br = tile.Br;
    c.Bc = tile.Bc;
    c.warps = tile.warps;
    c.stages = tile.stages;
    c.blocks_per_sm = tile.blocks_per_sm;
    if (!place_warps(c)) return std::nullopt;
    const int bytes = shared_bytes(c);
    if (bytes > device.shared_memory_per_block) return std::nullopt;
    // blocks that must share a multiprocessor must also share its memory
    if (tile.blocks_per_sm * (bytes + kReservedSharedMemory) > device.shared_memory_per_multiprocessor)
        return std::nullopt;
    return PlannedKernel{c, bytes, 0, tile.why};
}

const char* name_of(Kernel kernel) {
    switch (kernel) {
        case Kernel::forward:
            return "forward_sm80";
        case Kernel::forward_sm90:
            return "forward_sm90";
        case Kernel::backward_prepare:
            return "backward_prepare";
        case Kernel::backward:
            return "backward_sm80";
        case Kernel::backward_sm90:
            return "backward_sm90";
        case Kernel::backward_finish:
            return "backward_finish";
        case Kernel::backward_bias:
            return "backward_bias_sm80";
        case Kernel::dropout_mask:
            return "dropout_mask";
    }
    return "unknown";
}

const char* name_of(Element element) {
    switch (element) {
        case Element::fp32:
            return "fp32";
        case Element::fp16:
            return "fp16";
        case Element::bf16:
            return "bf16";
    }
    return "unknown";
}

namespace {

// Bytes that an address or a stride is a multiple of, at most 16.
int alignment_of(std::uint64_t bytes) {
    return bytes == 0 ? 16 : 1 << std::min(4, std::countr_zero(bytes));
}

// With every bit that is set in the bytes of a row of q and k, or of v.
std::uint64_t row_bytes(const Problem& p) {
    const auto size = static_cast<std::uint64_t>(size_of(p.dtype));
    return static_cast<std::uint64_t>(p.head_dim) * size | static_cast<std::uint64_t>(p.head_dim_v) * size;
}

}  // namespace

Access access_of(const Problem& p, const Operands& x) {
    Access access;
    const auto size = static_cast<std::uint64_t>(size_of(p.dtype));
    std::uint64_t all = row_bytes(p);
    const auto see = [&](const Operand& t, std::int64_t rows, std::int64_t heads) {
        if (!t) return;
        all |= reinterpret_cast<std::uintptr_t>(t.data);
        const auto stride = [&](std::int64_t count, std::int64_t elements) {
            if (count > 1) all |= static_cast<std::uint64_t>(elements) * size;
        };
        stride(rows, t.stride_row);
        stride(heads, t.stride_head);
        stride(p.runs(), t.stride_batch);
    };
    for (const Operand* t : {&x.q, &x.out, &x.dout, &x.dq}) see(*t, p.rows_q(), p.heads);
    for (const Operand* t : {&x.k, &x.v, &x.dk, &x.dv}) see(*t, p.rows_k(), p.kv_heads);
    access.vector_bytes = alignment_of(all);
    access.tensor_maps = can_map(p, x);
    access.bias_map = can_map_bias(p, x);
    access.lse = static_cast<bool>(x.lse);
    access.seqused = static_cast<bool>(x.seqused_k);
    access.dbias = static_cast<bool>(x.dbias);
    access.bias_batch = x.bias_batch;
    access.bias_heads = x.bias_heads;
    access.bias_rows = x.bias_rows;
    access.bias_cols = x.bias_cols;
    return access;
}

Access contiguous_access(const Problem& p) {
    Access access;
    access.vector_bytes = alignment_of(row_bytes(p));
    access.tensor_maps = access.vector_bytes == 16;
    return access;
}

ForwardPlan plan_forward(const Problem& p, const Access& access, const DeviceFacts& device, Choices choices) {
    check_sizes(p, device);
    KernelConfig c = common(p, access);
    c.kernel = Kernel::forward;
    c.lse = access.lse;
    c.lazy_rescale = !p.batch_invariant && !p.exact_max;
    const bool fp32 = c.element == Element::fp32;
    const std::string_view why_not = why_not_forward_sm90(c, p, access, device);
    if (why_not.empty()) {
        c.kernel = Kernel::forward_sm90;
        c.bias_mapped = c.bias == BiasElement::same && access.bias_map && !c.dropout;
        const bool uneven = c.band || c.lengths_differ();
        const auto table = [&]() -> std::span<const Tile> {
            if (c.has_bias_or_mask()) {
                if (c.dropout) return sm90::kForwardBiasOrMaskDropout;
                const bool alone = c.softcap + c.alibi + c.mask + (c.bias != BiasElement::none) == 1;
                if (c.bias == BiasElement::fp32 || !alone || (c.bias_mapped && c.lengths_differ()))
                    return sm90::kForwardBiasAndMore;
                if (c.bias_mapped) return sm90::kForwardBiasMapped;
                return c.mask ? std::span<const Tile>(sm90::kForwardMask) : sm90::kForwardBias;
            }
            if (c.dropout) return sm90::kForwardDropout;
            if (p.seqlen_q < (c.band ? kLong : kShort) || c.lengths_differ()) return sm90::kForwardShort;
            return p.seqlen_k >= kLong && !uneven ? std::span<const Tile>(sm90::kForwardLong) : sm90::kForward;
        }();
        const int widest = std::max(c.head_dim, c.head_dim_v);
        KernelConfig shared = c;
        shared.group_rows = group_rows(c, p);
        const auto kernel = find(shared, table, widest, device);
        ForwardPlan plan{measured_or(kernel ? *kernel : choose(c, table, widest, device), p, device, choices)};
        // Persistent, as many thread blocks as there is room for at a time, where tiles are unequal or short; long
        // equal ones gain nothing.
        const int Br = plan.forward.config.Br, rows = plan.forward.config.group_rows;
        const std::int64_t of_head = blocks_of(p.seqlen_q * rows, Br);
        const std::int64_t heads = (rows > 1 ? p.kv_heads : p.heads) * p.batch;
        // a packed sequence may leave a part of a tile over
        const std::int64_t tiles = checked_blocks(c.packed ? p.heads * p.units(Br) : of_head * heads);
        if (tiles > 0 && c.lengths_differ()) plan.workspace = sizeof(std::uint32_t);
        const bool persistent = uneven || p.seqlen_k < kLong;
        const std::int64_t at_a_time = std::int64_t{device.multiprocessors} * plan.forward.config.blocks_per_sm;
        plan.forward.blocks = persistent ? std::min(tiles, at_a_time) : tiles;
        if (!c.lengths_differ())
            plan.rounds = tile_rounds(static_cast<unsigned>(of_head), static_cast<unsigned>(heads),
                                      static_cast<unsigned>(plan.forward.blocks), c.band);
        return plan;
    }
    const int most = fp32 ? sm80::kMostValueColumnsFp32 : sm80::kMostValueColumns;
    c.value_slices = static_cast<int>(blocks_of(c.head_dim_v, most));
    if (c.value_slices > 1) {
        c.head_dim_v = round_up(static_cast<int>(blocks_of(p.head_dim_v, c.value_slices)), 16);
        // the last slice starts where it must to end with the last column
        const auto last = static_cast<std::uint64_t>((p.head_dim_v - c.head_dim_v) * size_of(p.dtype));
        c.vector_bytes = std::min(c.vector_bytes, alignment_of(last));
    }
    const auto table = [&]() -> std::span<const Tile> {
        if (fp32) return sm80::kForwardFp32;
        if (c.scale_first || c.softcap || c.mask || c.dropout) return sm80::kForwardWithOptions;
        if (c.lengths_differ() || p.batch_invariant) return sm80::kForwardPacked;
        return sm80::kForward;
    }();
    ForwardPlan plan{measured_or(choose(c, table, std::max(c.head_dim, c.head_dim_v), device), p, device, choices)};
    plan.forward.blocks = checked_blocks(query_blocks(p, plan.forward.config.Br) * c.value_slices);
    plan.forward.why_not_sm90 = why_not;
    return plan;
}

BackwardPlan plan_backward(const Problem& p, const Access& access, const DeviceFacts& device, Choices choices) {
    check_sizes(p, device);
    if (p.head_dim > kWidestBackward || p.head_dim_v > kWidestBackward)
        unsupported("head_dim is " + std::to_string(p.head_dim) + " and head_dim_v " + std::to_string(p.head_dim_v) +
                    ", supported by the backward pass on CUDA is at most " + std::to_string(kWidestBackward));
    KernelConfig c = common(p, access);
    c.kernel = Kernel::backward;
    c.deterministic = p.deterministic;
    const int widest = std::max(c.head_dim, c.head_dim_v);
    const bool fp32 = c.element == Element::fp32;

    BackwardPlan plan;
    const auto table = [&]() -> std::span<const Tile> {
        if (fp32) return sm80::kBackwardFp32;
        if (c.softcap) return sm80::kBackwardSoftcap;
        if (c.scale_first || c.mask || c.dropout || c.lengths_differ() || p.batch_invariant)
            return sm80::kBackwardWithOptions;
        return sm80::kBackward;
    }();
    constexpr int kConsumerWarps = 8;
    const std::string_view why_not = why_not_backward_sm90(c, p, access, device);
    const bool hopper = why_not.empty();
    if (hopper) c.kernel = Kernel::backward_sm90;
    c.exact_max = hopper && p.exact_max;  // the general kernels round no P that gradients are made of
    plan.backward = measured_or(choose(c, hopper ? std::span<const Tile>(sm90::kBackward) : table, widest, device), p,
                                device, choices);
    plan.backward.why_not_sm90 = why_not;
    const KernelConfig& main = plan.backward.config;
    plan.backward.blocks = checked_blocks(blocks_of(p.seqlen_k, main.Bc) * p.kv_heads * p.batch);

    // They need nothing of a config but where dQ lies: every mask and option shares them.
    KernelConfig around = main;
    around.band = around.window = around.seqused = around.softcap = around.alibi = around.mask = around.dropout = false;
    around.scale_first = around.deterministic = around.exact_max = false;
    around.bias = BiasElement::none;
    around.blocks_per_sm = 1;
    if (hopper) around.warps = kConsumerWarps;
    around.kernel = Kernel::backward_prepare;
    plan.prepare = {around, 0, query_blocks(p, main.Br), "a unit of Br queries a block"};
    around.kernel = Kernel::backward_finish;
    plan.finish = {around, shared_bytes(around), plan.prepare.blocks, plan.prepare.why};

    if (access.dbias) {
        KernelConfig bias = main;
        bias.kernel = Kernel::backward_bias;
        bias.deterministic = false;  // it is, whatever is asked for
        plan.bias = choose(
            bias, fp32 ? std::span<const Tile>(sm80::kBackwardBiasFp32) : std::span<const Tile>(sm80::kBackwardBias),
            widest, device, main.Br);  // no more than a unit, which holds rows of one sequence
        const std::int64_t rows = access.bias_rows == 1 ? 1 : blocks_of(access.bias_rows, plan.bias.config.Br);
        const std::int64_t columns = access.bias_cols == 1 ? 1 : blocks_of(access.bias_cols, plan.bias.config.Bc);
        plan.bias.blocks = checked_blocks(access.bias_batch * access.bias_heads * rows * columns);
    }

    plan.units = p.units(main.Br);
    if (plan.units > kMostUnits / p.heads)
        unsupported("the problem's backward pass takes " + std::to_string(plan.units) + " units of " +
                    std::to_string(main.Br) + " queries for each of " + std::to_string(p.heads) +
                    " heads, supported is at most " + std::to_string(kMostUnits) + " in all");
    const auto rows = static_cast<std::size_t>(p.heads * plan.units * main.Br);
    std::size_t next = 0;
    const auto take = [&](std::size_t bytes) {
        const std::size_t at = next;
        next += (bytes + 255) / 256 * 256;
        return at;
    };
    plan.lse = take(rows * sizeof(float));
    plan.lse_natural = take(rows * sizeof(float));
    plan.D = take(rows * sizeof(float));
    plan.dq = take(rows * static_cast<std::size_t>(padded(main, main.head_dim)) * sizeof(float));
    plan.turn = take(static_cast<std::size_t>(p.heads * plan.units) * sizeof(std::uint32_t));
    plan.workspace = next;
    return plan;
}

PlannedKernel plan_dropout_mask(const Problem& p, const DeviceFacts& device) {
    check_sizes(p, device);
    KernelConfig c;
    c.kernel = Kernel::dropout_mask;
    c.Br = 16;
    c.warps = 8;
    return {c, 0, query_blocks(p, c.Br), "16 queries a block"};
}

std::vector<KernelConfig> configs_for(Problem problem, const Access& access, const DeviceFacts& device) {
    std::vector<KernelConfig> configs;
    Access unmapped = access;  // as a bias's rows may be aligned or not
    unmapped.bias_map = false;
    for (const std::int64_t seqlen_q : {std::int64_t{1}, kFew + 1, kShort, kLong})
        for (const std::int64_t seqlen_k : {std::int64_t{1}, kLong})
            for (const Access& each : {access, unmapped}) {
                problem.seqlen_q = seqlen_q;
                problem.seqlen_k = seqlen_k;
                const KernelConfig config = plan_forward(problem, each, device).forward.config;
                if (std::ranges::find(configs, config) == configs.end()) configs.push_back(config);
            }
    if (problem.head_dim > kWidestBackward || problem.head_dim_v > kWidestBackward) return configs;
    const BackwardPlan backward = plan_backward(problem, access, device);
    for (const PlannedKernel* kernel : {&backward.prepare, &backward.backward, &backward.finish})
        configs.push_back(kernel->config);
    if (access.dbias) configs.push_back(backward.bias.config);
    return configs;
}

std::string describe(const PlannedKernel& kernel) {
    const KernelConfig& c = kernel.config;
    std::ostringstream text;
    text << name_of(c.kernel) << ' ' << name_of(c.element) << " d=" << c.head_dim << " dv=" << c.head_dim_v;
    if (c.value_slices > 1) text << " in " << c.value_slices << " slices";
    if (c.group_rows > 1) text << " group_rows=" << c.group_rows;
    text << ", " << c.Br << "x" << c.Bc << " tile, " << c.warps << " warps, " << c.stages << " stages, "
         << kernel.shared_memory << " bytes of shared memory, " << c.vector_bytes << "-byte loads, " << kernel.blocks
         << " blocks: " << kernel.why;
    return text.str();
}

}  // namespace flashtile::gpu
