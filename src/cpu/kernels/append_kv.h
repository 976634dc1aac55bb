// append_kv.h: new keys and values to their places in a cache, keys rotated by their positions, and queries rotated
// likewise. Where a row goes and how a pair is rotated stands in shared/append_params.h. What is not rotated is copied,
// or quantised for a cache of e4m3.
#pragma once

#include "core/append_params_of.h"
#include "cpu/isa/convert.h"
#include "cpu/kernels/head.h"
#include "cpu/kernels/rotary.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

class AppendRows {
public:
    AppendRows(const AppendProblem& problem, const AppendOperands& operands)
        : problem_(problem),
          x_(operands),
          p_(append_params_of(problem, operands)),
          width_(element_size(problem.dtype)) {}

    // Head h of new row `row`.
    void append(int64_t row, int64_t h) const {
        const OwnedRow of = owned_row(p_.cu_seqlens_k_new, p_.batch, p_.seqlen_k, p_.rows_k, row);
        if (of.n < 0) return;
        const CachePlace place = place_of(p_, of, row);
        if (place.page < 0) return;
        const int64_t position = p_.pairs != 0 ? key_position(p_, of, row) : 0;
        const char* const k = at(p_.k, width_, of.row_batch, of.row, h);
        const char* const v = p_.v.data != nullptr ? at(p_.v, width_, of.row_batch, of.row, h) : nullptr;
        if (problem_.quantizes()) {
            quantize(k, p_.head_dim, position, at(p_.k_cache, 1, place.page, place.row, h),
                     scale_at(problem_.k_scale, x_.k_scale, of.b, place, h));
            if (v != nullptr)
                quantize(v, p_.head_dim_v, kNotRotated, at(p_.v_cache, 1, place.page, place.row, h),
                         scale_at(problem_.v_scale, x_.v_scale, of.b, place, h));
            return;
        }
        rotate(k, at(p_.k_cache, width_, place.page, place.row, h), position);
        if (v != nullptr)
            memcpy(at(p_.v_cache, width_, place.page, place.row, h), v, static_cast<size_t>(p_.head_dim_v * width_));
    }

    // Head h of row `row` of q.
    void query(int64_t row, int64_t h) const {
        const OwnedRow of = owned_row(p_.cu_seqlens_q, p_.batch, p_.seqlen_q, p_.rows_q, row);
        if (of.n < 0) return;
        rotate(at(p_.q, width_, of.row_batch, of.row, h), at(p_.q_out, width_, of.row_batch, of.row, h),
               query_position(p_, of, row));
    }

private:
    static constexpr int64_t kNotRotated = -1;
    static constexpr int kMostPairs = kMostAppendedColumns / 2;

    static char* at(const DeviceTensor& x, int64_t width, int64_t batch, int64_t row, int64_t h) {
        return static_cast<char*>(x.data) + (batch * x.stride_batch + row * x.stride_row + h * x.stride_head) * width;
    }

    // The row at `to`, which may be `from`.
    void rotate(const char* from, char* to, int64_t position) const {
        if (to != from) memcpy(to, from, static_cast<size_t>(p_.head_dim * width_));
        if (p_.pairs == 0) return;
        float row[2 * kMostPairs];
        load_row(problem_.dtype, from + p_.rotary_begin * width_, 2 * p_.pairs, row);
        rotate(row, position);
        store_row(problem_.dtype, row, 2 * p_.pairs, to + p_.rotary_begin * width_);
    }

    // The columns from rotary_begin on.
    void rotate(float* row, int64_t position) const {
        rotate_row({problem_.table_dtype, p_.cos, p_.sin, p_.cos_stride, p_.sin_stride, p_.pairs, p_.interleaved != 0},
                   position, row);
    }

    // The row as e4m3, rounded once.
    void quantize(const char* from, int64_t cols, int64_t position, char* to, float scale) const {
        float row[kMostAppendedColumns];
        load_row(problem_.dtype, from, cols, row);
        if (position != kNotRotated && p_.pairs != 0) rotate(row + p_.rotary_begin, position);
        store_e4m3_row(row, cols, 1.0f / scale, reinterpret_cast<uint8_t*>(to));
    }

    float scale_at(ScaleKind kind, const Scales& scales, int64_t b, const CachePlace& place, int64_t h) const {
        if (kind == ScaleKind::none) return 1.0f;
        const int64_t outer = kind == ScaleKind::block ? place.page : b;
        const int64_t block = kind == ScaleKind::block ? place.row / problem_.scale_block : 0;
        return scales.data[outer * scales.stride_batch + h * scales.stride_head + block * scales.stride_block];
    }

    const AppendProblem& problem_;
    const AppendOperands& x_;
    AppendParams p_;
    int64_t width_;  // of an element, in bytes
};

// Items [first, end): heads of new rows, then heads of queries.
inline void append_kv(const AppendProblem& p, const AppendOperands& x, int64_t first, int64_t end) {
    const AppendRows rows(p, x);
    const int64_t keys = p.key_items();
    for (int64_t item = first; item < end; ++item)
        if (item < keys)
            rows.append(item / p.kv_heads, item % p.kv_heads);
        else
            rows.query((item - keys) / p.heads, (item - keys) % p.heads);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
