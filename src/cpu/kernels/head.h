// head.h: one (batch, head) of a problem as the kernels see it: its own lengths, band, base pointers and options, and
// the units that its scores are in.
#pragma once

#include "core/problem.h"
#include "cpu/isa/convert.h"
#include "cpu/isa/sizes.h"
#include "shared/mask.h"
#include "shared/philox.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr double kLog2eExact = 1.4426950408889634;
constexpr float kLog2e = static_cast<float>(kLog2eExact);

// Just above kHiddenScore: at or below it, a score is hidden. Running maxima start here. A hidden score then never
// becomes a maximum, its P is exactly 0, a row of nothing else ends with l = 0, and no -inf - -inf can arise.
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
};

inline int64_t element_size(DType dtype) {
    return dtype == DType::fp32 ? 4 : (dtype == DType::boolean ? 1 : 2);
}

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

struct Head {
    int64_t seqlen_q;
    int64_t seqlen_k;
    Band band;
    Rows q, k, v, out, lse, bias, mask;
    Rows dout, dq, dk, dv, dlse;
    float scale;
    float softcap;  // 0: off
    float slope;
    bool alibi;
    bool drops;
    Dropout dropout;
    int64_t origin_i, origin_j;
    int64_t rows_before;  // queries and sequences that lie before this one, for BackwardState
    int64_t sequences_before;

    // Where this sequence's units of `unit` queries start, if every sequence starts at a unit of its own.
    int64_t first_unit(int64_t unit) const { return rows_before / unit + sequences_before; }

    // True if scores need more than the band: every block then passes through modify_scores. (A factor of 0 cannot
    // follow a mask: 0 times -inf is NaN.)
    bool modified() const { return softcap != 0.0f || alibi || bias || mask || scale == 0.0f; }

    // scale * q.k is score_factor * (query_factor q).k. The sign goes into Q, so that the factor is positive and may
    // follow the maximum.
    float query_factor() const { return scale < 0.0f ? -1.0f : 1.0f; }
    float score_factor() const { return scale < 0.0f ? -scale : scale; }

    // A score is score_unit * s, rounded, of what a block holds. Plain: (query_factor q).k. Modified: the score itself,
    // since softcap, ALiBi and bias have worked on it. P = e^(score - m), with lse for m in backward, all in natural
    // units: a row's maximum gets exactly 1 whatever its score, forward and backward mean the same score, as D wants,
    // and lse is taken as it is stored. Units of log2 would round each of these once more, by hundreds at -1e10, where
    // a bias hides a whole row.
    float score_unit() const { return modified() ? 1.0f : score_factor(); }
};

inline int64_t length_at(const Lengths& lengths, int64_t n) {
    return lengths.wide ? static_cast<const int64_t*>(lengths.data)[n] : static_cast<const int32_t*>(lengths.data)[n];
}

// `h` is a query head.
inline Head make_head(const Problem& p, const Operands& x, int64_t b, int64_t h) {
    Head head{};
    int64_t q0 = 0, k0 = 0, pointer_b = b;
    head.seqlen_q = p.seqlen_q;
    head.seqlen_k = p.seqlen_k;
    if (p.packed) {
        q0 = length_at(x.cu_seqlens_q, b);
        k0 = length_at(x.cu_seqlens_k, b);
        head.seqlen_q = length_at(x.cu_seqlens_q, b + 1) - q0;
        head.seqlen_k = length_at(x.cu_seqlens_k, b + 1) - k0;
        pointer_b = 0;
    }
    if (x.seqused_k.data != nullptr) {
        const int64_t used = length_at(x.seqused_k, b);
        if (used < head.seqlen_k) head.seqlen_k = used;
    }
    head.rows_before = p.packed ? q0 : b * p.seqlen_q;
    head.sequences_before = b;
    head.band = {p.diagonal + (p.top_left ? 0 : head.seqlen_k - head.seqlen_q), p.window_left, p.window_right};

    const int64_t kv_head = h / (p.heads / p.kv_heads);
    head.q = rows_of(x.q, pointer_b, h, q0);
    head.k = rows_of(x.k, pointer_b, kv_head, k0);
    head.v = rows_of(x.v, pointer_b, kv_head, k0);
    head.out = rows_of(x.out, pointer_b, h, q0);
    head.lse = rows_of(x.lse, pointer_b, h, q0);
    head.bias = rows_of(x.bias, b, h, 0);  // indexed (sequence, head, i, j)
    head.mask = rows_of(x.mask, b, h, 0);
    head.dout = rows_of(x.dout, pointer_b, h, q0);
    head.dq = rows_of(x.dq, pointer_b, h, q0);
    head.dk = rows_of(x.dk, pointer_b, kv_head, k0);
    head.dv = rows_of(x.dv, pointer_b, kv_head, k0);
    head.dlse = rows_of(x.dlse, pointer_b, h, q0);

    head.scale = p.scale;
    head.softcap = p.softcap;
    head.alibi = p.alibi;
    if (p.alibi) head.slope = rows_of(x.slopes, b, h, 0).element(0, 0);
    head.drops = p.dropout_threshold != 0;
    head.dropout = Dropout::make(
        x.seed_ptr != nullptr ? *x.seed_ptr : x.seed, x.offset_ptr != nullptr ? *x.offset_ptr : x.offset,
        static_cast<unsigned>(p.origin_b + b), static_cast<unsigned>(p.origin_h + h), p.dropout_threshold);
    head.origin_i = p.origin_i;
    head.origin_j = p.origin_j;
    return head;
}

// Hands out pieces of one scratch buffer, each on a cache line of its own. It counts in an integer, since a null base,
// with which it only measures, has no place that a pointer could move to.
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
