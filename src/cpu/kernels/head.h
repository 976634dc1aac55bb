// head.h: one head of one sequence as the kernels see it: its lengths, band, addresses and options, and the units of
// its scores.
#pragma once

#include "core/problem.h"
#include "cpu/isa/convert.h"
#include "cpu/isa/sizes.h"
#include "shared/block_kinds.h"
#include "shared/mask.h"
#include "shared/philox.h"
#include "shared/visited_blocks.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr double kLog2eExact = 1.4426950408889634;
constexpr float kLog2e = static_cast<float>(kLog2eExact);

// Just above kHiddenScore; a score at or below kLeastScore is hidden. Running maxima start at kLeastScore. A hidden
// score then never becomes a maximum, and its P is exactly 0. A row with only hidden scores ends with l = 0. -inf is
// never subtracted from -inf.
constexpr float kLeastScore = kHiddenScore * 0.999999f;

// Rows of one operand of one head.
struct Rows {
    char* data = nullptr;
    DType dtype = DType::unset;
    int64_t bytes = 0;       // of an element
    int64_t stride_row = 0;  // in elements
    int64_t stride_col = 0;

    explicit operator bool() const { return data != nullptr; }
    char* at(int64_t row, int64_t col = 0) const { return data + (row * stride_row + col * stride_col) * bytes; }
    float element(int64_t row, int64_t col) const { return load_element(dtype, at(row, col), 0); }
    // What the elements of a row are multiplied by.
    float scale_of(int64_t) const { return 1.0f; }
};

inline int64_t element_size(DType dtype) {
    return dtype == DType::fp32 ? 4 : (dtype == DType::boolean || dtype == DType::fp8_e4m3 ? 1 : 2);
}

// Scales of blocks of 2^shift rows of one head. Null: none, and rows are multiplied by 1.
struct BlockScales {
    const float* data = nullptr;
    int64_t stride_page = 0;
    int64_t stride_block = 0;
    int shift = 0;

    explicit operator bool() const { return data != nullptr; }
    float at(int64_t row) const { return data[(row >> shift) * stride_block]; }
};

inline Rows rows_of(const Operand& x, int64_t b, int64_t h, int64_t first_row) {
    Rows rows;
    if (x.data == nullptr) return rows;
    rows.dtype = x.dtype;
    rows.bytes = element_size(x.dtype);
    rows.stride_row = x.stride_row;
    rows.stride_col = x.stride_col;
    rows.data =
        static_cast<char*>(x.data) + (b * x.stride_batch + h * x.stride_head + first_row * x.stride_row) * rows.bytes;
    return rows;
}

// Queries of one head.
struct QueryRows : Rows {
    BlockScales scales{};

    float scale_of(int64_t row) const { return scales ? scales.at(row) : 1.0f; }
};

// Keys or values of one head: rows one after the other, or in the pages of a cache.
class KeyRows : private Rows {
public:
    using Rows::bytes;
    using Rows::dtype;
    using Rows::stride_col;
    using Rows::stride_row;

    KeyRows() = default;
    explicit KeyRows(const Rows& rows) : Rows(rows) {}
    // Row j is row j % page_size of page pages[j / page_size], or for j before `prefix` of prefix_pages[..]; `first`
    // are the rows of page 0.
    KeyRows(const Rows& first, const int32_t* pages, int64_t page_size, int64_t stride_page,
            const int32_t* prefix_pages, int64_t prefix)
        : Rows(first),
          pages_(pages),
          prefix_pages_(prefix_pages),
          prefix_(prefix),
          page_size_(page_size),
          page_bytes_(stride_page * first.bytes) {
        if ((page_size & (page_size - 1)) == 0) shift_ = __builtin_ctzll(static_cast<unsigned long long>(page_size));
    }

    bool paged() const { return pages_ != nullptr; }
    char* at(int64_t row, int64_t col = 0) const {
        if (!paged()) return Rows::at(row, col);
        const int64_t n = page_of(row);
        return Rows::at(row - n * page_size_, col) + (row < prefix_ ? prefix_pages_ : pages_)[n] * page_bytes_;
    }

    bool has_scales() const { return static_cast<bool>(scales_); }
    void set_scales(const BlockScales& scales) { scales_ = scales; }
    float scale_of(int64_t row) const {
        if (!scales_) return 1.0f;
        if (!paged()) return scales_.at(row);
        const int64_t n = page_of(row);
        return scales_.data[(row < prefix_ ? prefix_pages_ : pages_)[n] * scales_.stride_page +
                            ((row - n * page_size_) >> scales_.shift) * scales_.stride_block];
    }
    // The end of those rows from `row` on that have its scale, at most `end`.
    int64_t end_of_scale(int64_t row, int64_t end) const {
        if (!scales_) return end;
        const int64_t first = paged() ? page_of(row) * page_size_ : 0, block = int64_t{1} << scales_.shift;
        return lesser(first + ((row - first) / block + 1) * block, end_of_run(row, end));
    }

    // Whether rows lie in runs long enough to be worth a step each.
    bool has_long_runs() const { return !paged() || page_size_ >= 16; }
    // The end of those rows from `row` on that are stride_row apart, at most `end`: of a page.
    int64_t end_of_run(int64_t row, int64_t end) const {
        if (!paged()) return end;
        const int64_t page_end = (page_of(row) + 1) * page_size_;
        if (row < prefix_ && prefix_ < end) end = prefix_;
        return page_end < end ? page_end : end;
    }

private:
    int64_t page_of(int64_t row) const { return shift_ >= 0 ? row >> shift_ : row / page_size_; }

    const int32_t* pages_ = nullptr;
    const int32_t* prefix_pages_ = nullptr;
    int64_t prefix_ = 0;
    int64_t page_size_ = 0, page_bytes_ = 0;
    int shift_ = -1;  // of a page_size that is a power of two
    BlockScales scales_;
};

struct Head {
    int64_t seqlen_q;
    int64_t seqlen_k;
    int64_t first_k;  // keys before it are hidden
    ChunkedBand band;
    const int32_t* positions;  // of the queries; null: i + off
    int64_t first_of_any;      // with positions: no query may see a key before it
    QueryRows q;
    Rows out, lse, bias, mask;
    KeyRows k, v;
    Rows tree;   // the mask of the last seqlen_q keys
    float sink;  // -infinity: none
    Rows dout, dq, dk, dv, dlse;
    float scale;    // with the scales of q and k that are the same for all rows
    float v_scale;  // likewise, of v
    float softcap;  // 0: off
    float slope;
    bool alibi;
    bool drops;
    Dropout dropout;
    int64_t origin_i, origin_j;
    int64_t place_b, place_h;  // of the head in the whole problem, as functions see it
    functions::FunctionsView functions;
    BlockKinds<int64_t> blocks;  // of the user's lists
    bool score_hides;            // the score function may
    bool narrow_ints;            // 32 bits hold every int of the functions
    int64_t rows_before;         // queries and sequences before this one, for BackwardState
    int64_t sequences_before;

    // The number of this sequence's first unit of `unit` queries. Every sequence starts at a new unit.
    int64_t first_unit(int64_t unit) const { return rows_before / unit + sequences_before; }

    // The keys that a query may see without regard to masks: the band's from first_k on. With positions bounds that
    // hold for every query, since they need not grow with i.
    int64_t first_key(int64_t i) const {
        const int64_t j = positions != nullptr ? first_of_any : band.first_key(i);
        return j > first_k ? j : first_k;
    }
    int64_t end_key(int64_t i) const { return positions != nullptr ? seqlen_k : band.end_key(i, seqlen_k); }
    // True if every query of [i0, i1) may see every key of [j0, j1).
    bool covers(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
        return positions == nullptr && j0 >= first_k && band.covers(i0, i1, j0, j1);
    }

    // Keys before the last seqlen_q ones, which are the queries' own where there is a tree.
    int64_t old_keys() const { return seqlen_k - seqlen_q; }
    int64_t position(int64_t i) const { return positions != nullptr ? positions[i] : i + band.offset; }
    int64_t key_position(int64_t j) const {
        return positions != nullptr && j >= old_keys() ? positions[j - old_keys()] : j;
    }
    // Positions alone: whether the band has key j for query i.
    bool band_has(int64_t i, int64_t j) const {
        const int64_t row = position(i) - band.offset, at = key_position(j);
        return j >= first_k && at >= band.first_key(row) && at < band.end_key(row, ChunkedBand::kOpen);
    }

    // True if scores need more than that and what shown() says. modify_scores then works on every block. A scale of 0
    // is among these cases: it must be applied before a mask, since 0 times -inf is NaN.
    bool modified() const { return softcap != 0.0f || alibi || functions.score || hides_anywhere() || scale == 0.0f; }
    // True if scores may hide keys that the band shows: by a mask, or by what makes them -infinity.
    bool hides() const { return hides_anywhere() || functions.mask || blocks; }
    // Also in a block of which shown() says that all is.
    bool hides_anywhere() const { return bias || mask || tree || score_hides; }
    // What the user's lists and the mask function show of some scores.
    functions::Visible shown(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
        if (i0 >= i1 || j0 >= j1) return functions::Visible::none;
        const BlockKind kind = blocks ? blocks.of(i0, i1, j0, j1) : BlockKind::partial;
        if (kind == BlockKind::hidden) return functions::Visible::none;
        if (kind == BlockKind::mixed) return functions::Visible::some;
        if (kind == BlockKind::full || !functions.mask) return functions::Visible::all;
        return functions::visible(functions, region(i0, i1, j0, j1));
    }
    functions::Region region(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
        return {place_b, place_h, origin_i + i0, origin_i + i1, origin_j + j0, origin_j + j1, seqlen_q, seqlen_k};
    }

    // scale * q.k is computed as score_factor * (query_factor q).k. The sign of scale goes into Q. The factor is then
    // not negative, so that the maximum may be taken before the factor is applied.
    float query_factor() const { return scale < 0.0f ? -1.0f : 1.0f; }
    float score_factor() const { return scale < 0.0f ? -scale : scale; }

    // A block holds values s, and a score is score_unit * s, rounded. Where modified() is false, s is
    // (query_factor q).k. Where it is true, s is the score itself, since softcap, ALiBi and bias have changed it.
    // P is e^(score - m), in backward e^(score - lse). All of them are in natural units, not in units of log2:
    //   - P of a row's maximum is exactly 1, whatever the score.
    //   - Forward and backward compute the same score, which D relies on.
    //   - lse is used as it is stored.
    // Units of log2 would round each score once more. At -1e10, where a bias hides a whole row, that rounding is off by
    // hundreds.
    float score_unit() const { return modified() ? 1.0f : score_factor(); }
};

inline int64_t length_at(const Lengths& lengths, int64_t n) {
    return lengths.wide ? static_cast<const int64_t*>(lengths.data)[n] : static_cast<const int32_t*>(lengths.data)[n];
}

// The first `keys` keys of a sequence are those of its group's first sequence.
struct Prefix {
    int64_t first, keys;
};

inline Prefix prefix_of(const Problem& p, const Operands& x, int64_t b) {
    int64_t low = 0, high = p.prefix_groups;  // the last group that starts at or before b
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (length_at(x.prefix_groups, middle) <= b)
            low = middle;
        else
            high = middle;
    }
    if (high == 0 || b >= length_at(x.prefix_groups, low + 1)) return {b, 0};
    return {length_at(x.prefix_groups, low), length_at(x.prefix_lengths, low)};
}

// The rows of k or v of one sequence and key head, from row `first_row` of what lies one after the other.
inline KeyRows key_rows_of(const Problem& p, const Operands& x, const Operand& keys, int64_t b, int64_t kv_head,
                           int64_t first_row) {
    if (!p.cache) return KeyRows(rows_of(keys, p.packed ? 0 : b, kv_head, first_row));
    if (x.block_table != nullptr) {
        const Prefix prefix = prefix_of(p, x, b);
        return KeyRows(rows_of(keys, 0, kv_head, 0), x.block_table + b * x.block_table_stride, p.page_size,
                       keys.stride_batch, x.block_table + prefix.first * x.block_table_stride, prefix.keys);
    }
    return KeyRows(rows_of(keys, x.cache_batch_idx.data != nullptr ? length_at(x.cache_batch_idx, b) : b, kv_head, 0));
}

// A scale that all rows of a head have; kv_head is that of q's group.
inline float head_scale(ScaleKind kind, const Scales& scales, int64_t b, int64_t kv_head) {
    if (kind != ScaleKind::tensor && kind != ScaleKind::head) return 1.0f;
    return scales.data[b * scales.stride_batch + kv_head * scales.stride_head];
}

// The scales of a head's blocks of rows in sequence, page or row `outer`, or from block `first` on.
inline BlockScales block_scales(const Problem& p, ScaleKind kind, const Scales& scales, int64_t outer, int64_t h,
                                int64_t first) {
    if (kind != ScaleKind::block) return {};
    return {scales.data + outer * scales.stride_batch + h * scales.stride_head + first * scales.stride_block,
            scales.stride_batch, scales.stride_block, p.scale_block == 64 ? 6 : 7};
}

// How many blocks the sequences before this one have in a packed batch.
inline int64_t blocks_before(const Problem& p, const Lengths& cu_seqlens, int64_t b) {
    int64_t blocks = 0;
    for (int64_t n = 0; n < b; ++n)
        blocks += (length_at(cu_seqlens, n + 1) - length_at(cu_seqlens, n) + p.scale_block - 1) / p.scale_block;
    return blocks;
}

// Of k or v.
inline BlockScales key_scales(const Problem& p, const Operands& x, ScaleKind kind, const Scales& scales, int64_t b,
                              int64_t kv_head) {
    if (kind != ScaleKind::block) return {};
    if (p.packed && !p.cache) return block_scales(p, kind, scales, 0, kv_head, blocks_before(p, x.cu_seqlens_k, b));
    if (x.block_table != nullptr) return block_scales(p, kind, scales, 0, kv_head, 0);
    return block_scales(p, kind, scales, x.cache_batch_idx.data != nullptr ? length_at(x.cache_batch_idx, b) : b,
                        kv_head, 0);
}

// What the call has appended to a sequence, whose length does not count it.
inline int64_t appended_keys(const Problem& p, const Operands& x, int64_t b) {
    if (!p.append.packed_k) return p.append.seqlen_k;
    return length_at(x.append.cu_seqlens_k_new, b + 1) - length_at(x.append.cu_seqlens_k_new, b);
}

// `h` is a query head.
inline Head make_head(const Problem& p, const Operands& x, int64_t b, int64_t h) {
    Head head{};
    int64_t q0 = 0, k0 = 0, pointer_b = b;
    head.seqlen_q = p.seqlen_q;
    head.seqlen_k = p.seqlen_k;
    if (p.packed) {
        q0 = length_at(x.cu_seqlens_q, b);
        head.seqlen_q = length_at(x.cu_seqlens_q, b + 1) - q0;
        pointer_b = 0;
    }
    if (p.packed && !p.cache) {
        k0 = length_at(x.cu_seqlens_k, b);
        head.seqlen_k = length_at(x.cu_seqlens_k, b + 1) - k0;
    }
    if (x.seqused_q.data != nullptr) {
        const int64_t used = length_at(x.seqused_q, b);
        if (used < head.seqlen_q) head.seqlen_q = used;
    }
    if (x.seqused_k.data != nullptr) {
        const int64_t used = length_at(x.seqused_k, b);
        if (used < head.seqlen_k) head.seqlen_k = used;
    }
    if (p.appends) head.seqlen_k += appended_keys(p, x, b);
    head.first_k = x.first_k.data != nullptr ? length_at(x.first_k, b) : 0;
    head.rows_before = p.packed ? q0 : b * p.seqlen_q;
    head.sequences_before = b;
    head.band = ChunkedBand::of(p, head.seqlen_q, head.seqlen_k);
    if (p.diagonals) head.band.offset += x.diagonals[b];
    if (p.positions) {
        head.positions = x.positions + b * x.positions_stride + q0;
        head.first_of_any = head.seqlen_k;
        for (int64_t i = 0; i < head.seqlen_q; ++i) {
            const int64_t first = head.band.first_key(head.positions[i] - head.band.offset);
            if (first < head.first_of_any) head.first_of_any = first;
        }
        const int64_t old = head.old_keys();
        if (head.first_of_any > old) head.first_of_any = old > 0 ? old : 0;
    }

    const int64_t kv_head = h / (p.heads / p.kv_heads);
    head.q = {rows_of(x.q, pointer_b, h, q0)};
    head.k = key_rows_of(p, x, x.k, b, kv_head, k0);
    head.v = key_rows_of(p, x, x.v, b, kv_head, k0);
    head.out = rows_of(x.out, pointer_b, h, q0);
    head.lse = rows_of(x.lse, pointer_b, h, q0);
    head.bias = rows_of(x.bias, b, h, 0);  // indexed (sequence, head, i, j)
    head.mask = rows_of(x.mask, b, h, 0);
    head.tree = rows_of(x.tree_mask, b, h, 0);
    head.sink = x.sinks.data != nullptr ? rows_of(x.sinks, 0, h, 0).element(0, 0) : -__builtin_inff();
    head.dout = rows_of(x.dout, pointer_b, h, q0);
    head.dq = rows_of(x.dq, pointer_b, h, q0);
    head.dk = rows_of(x.dk, pointer_b, kv_head, k0);
    head.dv = rows_of(x.dv, pointer_b, kv_head, k0);
    head.dlse = rows_of(x.dlse, pointer_b, h, q0);

    head.scale = p.scale;
    head.v_scale = 1.0f;
    if (p.has_e4m3()) {
        const float q_scale = head_scale(p.q_scale, x.q_scale, b, kv_head),
                    k_scale = head_scale(p.k_scale, x.k_scale, b, kv_head);
        head.scale = static_cast<float>(static_cast<double>(p.scale) * static_cast<double>(q_scale) *
                                        static_cast<double>(k_scale));
        head.v_scale = head_scale(p.v_scale, x.v_scale, b, kv_head);
        if (p.q_scale == ScaleKind::block)
            head.q.scales =
                block_scales(p, p.q_scale, x.q_scale, pointer_b, h, p.packed ? blocks_before(p, x.cu_seqlens_q, b) : 0);
        head.k.set_scales(key_scales(p, x, p.k_scale, x.k_scale, b, kv_head));
        head.v.set_scales(key_scales(p, x, p.v_scale, x.v_scale, b, kv_head));
    }
    head.softcap = p.softcap;
    head.alibi = p.alibi;
    if (p.alibi) head.slope = rows_of(x.slopes, b, h, 0).element(0, 0);
    head.drops = p.dropout_threshold != 0;
    head.dropout = Dropout::make(
        x.seed_ptr != nullptr ? *x.seed_ptr : x.seed, x.offset_ptr != nullptr ? *x.offset_ptr : x.offset,
        static_cast<unsigned>(p.origin_b + b), static_cast<unsigned>(p.origin_h + h), p.dropout_threshold);
    head.origin_i = p.origins_i ? x.origins_i[b] : p.origin_i;
    head.origin_j = p.origins_j ? x.origins_j[b] : p.origin_j;
    head.place_b = p.origin_b + b;
    head.place_h = p.origin_h + h;
    if (x.block_kinds != nullptr) {
        const int64_t list = (p.list_batch > 1 ? b : 0) * p.list_heads + (p.list_heads > 1 ? h : 0);
        head.blocks = {x.block_kinds + list * p.query_blocks() * p.key_blocks(), p.block_q, p.block_k, p.key_blocks()};
    }
    head.functions = functions::view_of(p.functions, x.function_tensors);
    if (head.functions.functions != nullptr && head.seqlen_q > 0 && head.seqlen_k > 0) {
        const functions::Region whole = head.region(0, head.seqlen_q, 0, head.seqlen_k);
        head.score_hides = head.functions.score && functions::may_hide(head.functions, whole);
        head.narrow_ints = functions::fits_32_bits(head.functions, whole);
    }
    return head;
}

// Hands out pieces of one scratch buffer, each on cache lines of its own. With a null base it only measures how much
// memory is needed. It counts in an integer, since arithmetic on a null pointer is undefined.
class Arena {
public:
    explicit Arena(void* base) : next_(reinterpret_cast<std::uintptr_t>(base)) {}

    template <class T>
    T* take(int64_t count) {
        T* piece = reinterpret_cast<T*>(next_);
        next_ += static_cast<std::uintptr_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
        return piece;
    }
    int64_t used(const void* base) const {
        return static_cast<int64_t>(next_ - reinterpret_cast<std::uintptr_t>(base));
    }

private:
    std::uintptr_t next_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
