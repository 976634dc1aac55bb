// tensor_map.cpp: see tensor_map.h.
#include "cuda/tensor_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "core/per_thread.h"
#include "cuda/driver.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kAlignment = 16;
// TMA asks memory for two lines of the L2 cache at a time, where a kernel needs the second one soon as well, or for
// one, which brings what a kernel streams as fast as it can 7% faster (docs/performance/cuda.md, Decoding).
constexpr CUtensorMapL2promotion kTwoLines = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
constexpr CUtensorMapL2promotion kOneLine = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
constexpr std::int64_t kStrideEnd = std::int64_t{1} << 40;  // bytes
constexpr std::int64_t kRowsEnd = std::int64_t{1} << 31;    // coordinates are 32 bits

bool stride_fits(std::int64_t count, std::int64_t bytes) {
    return count <= 1 || (bytes > 0 && bytes % kAlignment == 0 && bytes < kStrideEnd);
}

bool can_map(const Operand& x, std::int64_t rows, std::int64_t heads, std::int64_t batch, std::int64_t size) {
    return reinterpret_cast<std::uintptr_t>(x.data) % kAlignment == 0 && stride_fits(rows, x.stride_row * size) &&
           stride_fits(heads, x.stride_head * size) && stride_fits(batch, x.stride_batch * size);
}

// What a map follows from: addresses, sizes and strides, in bytes but for the shape and the box.
struct MapKey {
    void* data;
    CUtensorMapDataType type;
    std::uint32_t dimensions;
    std::uint64_t shape[5];  // from the innermost dimension out
    std::uint64_t strides[4];
    std::uint32_t box[5];
    CUtensorMapL2promotion lines;

    bool operator==(const MapKey&) const = default;
};

TensorMap encoded(const MapKey& key) {
    const std::uint32_t every[] = {1, 1, 1, 1, 1};
    CUtensorMap map;
    driver().check(
        driver().cuTensorMapEncodeTiled(&map, key.type, key.dimensions, key.data, key.shape, key.strides, key.box,
                                        every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, key.lines,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describing a tensor to TMA");
    TensorMap words;
    static_assert(sizeof words == sizeof map);
    std::memcpy(&words, &map, sizeof words);
    return words;
}

// The driver takes longer to encode a call's maps than all else here takes, and programs use the same memory again. A
// thread keeps the last map of each slot.
struct KeptMaps {
    struct Slot {
        MapKey key{};
        TensorMap map{};
    };
    std::array<Slot, 256> slots;
};

const TensorMap& map_for(const MapKey& key) {
    const std::uint64_t mixed =
        (reinterpret_cast<std::uintptr_t>(key.data) >> 4 ^ key.shape[1] << 32 ^ key.box[1]) * 0x9E3779B97F4A7C15u;
    KeptMaps::Slot& slot = PerThread<KeptMaps>::get().slots[mixed >> 56];
    if (slot.key != key) {
        slot.map = encoded(key);
        slot.key = key;  // last: encoding may throw
    }
    return slot.map;
}

struct Dimension {
    std::int64_t size, stride;  // in elements
    int box;
};

CUtensorMapDataType map_type(DType dtype) {
    switch (dtype) {
        case DType::fp8_e4m3:
            return CU_TENSOR_MAP_DATA_TYPE_UINT8;
        case DType::bf16:
            return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        default:
            return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    }
}

// Of columns, 128 bytes in a box, and what is named, from the inside out.
TensorMap map_of(const Operand& x, DType dtype, std::int64_t first_row, std::int64_t columns,
                 std::initializer_list<Dimension> dimensions, CUtensorMapL2promotion lines = kTwoLines) {
    const std::int64_t size = size_of(dtype);
    MapKey key{};
    key.lines = lines;
    key.data = static_cast<char*>(x.data) + first_row * x.stride_row * size;
    key.type = map_type(dtype);
    const auto add = [&](std::int64_t count, int box) {
        key.shape[key.dimensions] = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
        key.box[key.dimensions++] = static_cast<std::uint32_t>(box);
    };
    add(columns, static_cast<int>(kChunkRowBytes / size));
    for (const auto& [count, stride, box] : dimensions) {
        // A dimension of size 1 may have any stride; the driver wants a multiple of 16.
        key.strides[key.dimensions - 1] = static_cast<std::uint64_t>(count > 1 ? stride * size : kAlignment);
        add(count, box);
    }
    return map_for(key);
}

// Rows [first, end) of (batch, rows, heads, columns), a box being `box_rows` rows of one head.
TensorMap map_of_rows(const Operand& x, DType dtype, std::int64_t columns, std::int64_t first, std::int64_t end,
                      std::int64_t heads, std::int64_t batch, int box_rows, CUtensorMapL2promotion lines = kTwoLines) {
    return map_of(x, dtype, first, columns,
                  {{end - first, x.stride_row, box_rows}, {heads, x.stride_head, 1}, {batch, x.stride_batch, 1}},
                  lines);
}

// A box is `box_rows` rows of a group: queries, each with config.group_rows heads, of which some may lie outside; or
// some heads of one query.
TensorMap map_of_groups(const Operand& x, const Problem& p, const KernelConfig& config, std::int64_t columns,
                        int box_rows) {
    return map_of(x, p.dtype, 0, columns,
                  {{p.group(), x.stride_head, std::min(config.group_rows, box_rows)},
                   {p.rows_q(), x.stride_row, std::max(box_rows / config.group_rows, 1)},
                   {p.kv_heads, x.stride_head * p.group(), 1},
                   {p.runs(), x.stride_batch, 1}});
}

// Of so many heads or sequences, those with a bias of their own: all, or all share one.
std::int64_t own_biases(std::int64_t count, std::int64_t stride) {
    return stride == 0 ? 1 : count;
}

}  // namespace

bool can_map(const Problem& p, const Operands& x) {
    const std::int64_t size = size_of(p.dtype), of_keys = size_of(p.dtype_of_k());
    return p.head_dim * of_keys % kAlignment == 0 && p.head_dim_v * of_keys % kAlignment == 0 &&
           std::max(p.rows_q(), p.rows_k()) < kRowsEnd && can_map(x.q, p.rows_q(), p.heads, p.runs(), size) &&
           can_map(x.k, p.rows_k(), p.kv_heads, runs_of_keys(p), of_keys) &&
           can_map(x.v, p.rows_k(), p.kv_heads, runs_of_keys(p), of_keys) &&
           (!x.out || can_map(x.out, p.rows_q(), p.heads, p.runs(), size_of(p.dtype_of_out()))) &&
           (!x.dout || can_map(x.dout, p.rows_q(), p.heads, p.runs(), size));
}

bool can_map_bias(const Problem& p, const Operands& x) {
    return x.bias && p.bias == p.dtype && x.bias.stride_col == 1 && x.bias_rows == p.seqlen_q &&
           x.bias_cols == p.seqlen_k &&
           can_map(x.bias, p.seqlen_q, own_biases(x.bias_heads, x.bias.stride_head),
                   own_biases(x.bias_batch, x.bias.stride_batch), size_of(p.dtype));
}

namespace {

struct Rows {
    std::int64_t first, end;
};

// The keys that some query sees, and the queries that see some key, where the lengths of sequences are known.
Rows seen_keys(const Band& band, const Problem& p) {
    return {std::min<std::int64_t>(band.first_key(0), p.seqlen_k),
            p.seqlen_q > 0 ? band.end_key(p.seqlen_q - 1, p.seqlen_k) : 0};
}
Rows seen_queries(const Band& band, const Problem& p) {
    return {std::min<std::int64_t>(band.first_query(0), p.seqlen_q),
            p.seqlen_k > 0 ? band.end_query(p.seqlen_k - 1, p.seqlen_q) : 0};
}

// The rows of queries and keys that a map may have.
struct MappedRows {
    Rows queries, keys;
};

// Of all the maps of a launch.
class LaunchMaps {
public:
    LaunchMaps(const KernelConfig& config, const Problem& p, const Operands& x)
        : config_(config),
          p_(p),
          x_(x),
          all_{{0, p.rows_q()}, {0, p.page_size != 0 ? p.page_size : p.rows_k()}},
          seen_(all_) {
        if (config.maps_hold_hidden_keys()) return;  // the kernel sees to it
        const Band band = Band::of(p, p.seqlen_q, p.seqlen_k);
        seen_ = {seen_queries(band, p), seen_keys(band, p)};
    }

    void set(KernelParams& params, const PlannedMap& map) const {
        const int box_rows = map.box_rows;
        const auto& [queries, keys] = map.seen_rows_only ? seen_ : all_;
        switch (map.operand) {
            case MappedOperand::q:
                params.q_map =
                    config_.prefixes ? of_all_queries(box_rows) : of_queries(x_.q, p_.head_dim, queries, box_rows);
                params.first_query = static_cast<int>(queries.first);
                break;
            case MappedOperand::dout:
                params.dout_map = of_queries(x_.dout, p_.head_dim_v, queries, box_rows);
                break;
            case MappedOperand::out:
                params.out_map = of_queries(x_.out, p_.head_dim_v, queries, box_rows);
                break;
            case MappedOperand::k:
                params.k_map = of_keys(x_.k, p_.head_dim, keys, map);
                params.first_key = static_cast<int>(keys.first);
                break;
            case MappedOperand::v:
                params.v_map = of_keys(x_.v, p_.head_dim_v, keys, map);
                break;
            case MappedOperand::bias:
                params.bias_map = of_bias(box_rows);
                break;
        }
    }

private:
    TensorMap of_queries(const Operand& x, std::int64_t columns, const Rows& rows, int box_rows) const {
        if (config_.group_rows > 1) return map_of_groups(x, p_, config_, columns, box_rows);
        return map_of_rows(x, p_.dtype, columns, rows.first, rows.end, p_.heads, p_.runs(), box_rows);
    }
    // All sequences' as one run; Access says that they lie so.
    TensorMap of_all_queries(int box_rows) const {
        Problem run = p_;
        run.packed = true;
        run.total_q = p_.rows_q() * p_.runs();
        Operand q = x_.q;
        if (p_.runs() > 1 && p_.seqlen_q == 1) q.stride_row = q.stride_batch;
        if (config_.group_rows > 1) return map_of_groups(q, run, config_, p_.head_dim, box_rows);
        return map_of_rows(q, p_.dtype, p_.head_dim, 0, run.total_q, p_.heads, 1, box_rows);
    }
    TensorMap of_keys(const Operand& x, std::int64_t columns, const Rows& rows, const PlannedMap& map) const {
        return map_of_rows(x, p_.dtype_of_k(), columns, rows.first, rows.end, p_.kv_heads, runs_of_keys(p_),
                           map.box_rows, map.streamed ? kOneLine : kTwoLines);
    }
    TensorMap of_bias(int box_rows) const {
        const Operand& bias = x_.bias;
        return map_of(bias, p_.dtype, 0, p_.seqlen_k,
                      {{p_.seqlen_q, bias.stride_row, box_rows},
                       {own_biases(x_.bias_heads, bias.stride_head), bias.stride_head, 1},
                       {own_biases(x_.bias_batch, bias.stride_batch), bias.stride_batch, 1}});
    }

    const KernelConfig& config_;
    const Problem& p_;
    const Operands& x_;
    MappedRows all_, seen_;
};

}  // namespace

void set_maps(KernelParams& params, const Launch& launch, const Problem& p, const Operands& x) {
    if (launch.maps.empty()) return;
    const LaunchMaps maps(launch.config, p, x);
    for (const PlannedMap& map : launch.maps) maps.set(params, map);
}

}  // namespace flashtile::gpu
