// append_kv.h: new keys and values to their places in a cache, keys rotated by their positions, and queries rotated
// likewise. Where a row goes and how a pair is rotated stands in shared/append_params.h. What is not rotated is copied.
#pragma once

#include "core/append_params_of.h"
#include "cpu/isa/convert.h"
#include "cpu/kernels/head.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

class AppendRows {
public:
    AppendRows(const AppendProblem& problem, const AppendOperands& operands)
        : problem_(problem), p_(append_params_of(problem, operands)), width_(element_size(problem.dtype)) {}

    // Head h of new row `row`.
    void append(int64_t row, int64_t h) const {
        const OwnedRow of = owned_row(p_.cu_seqlens_k_new, p_.batch, p_.seqlen_k, p_.rows_k, row);
        if (of.n < 0) return;
        const CachePlace place = place_of(p_, of, row);
        if (place.page < 0) return;
        rotate(at(p_.k, of.row_batch, of.row, h), at(p_.k_cache, place.page, place.row, h),
               p_.pairs != 0 ? key_position(p_, of, row) : 0);
        if (p_.v.data != nullptr)
            memcpy(at(p_.v_cache, place.page, place.row, h), at(p_.v, of.row_batch, of.row, h),
                   static_cast<size_t>(p_.head_dim_v * width_));
    }

    // Head h of row `row` of q.
    void query(int64_t row, int64_t h) const {
        const OwnedRow of = owned_row(p_.cu_seqlens_q, p_.batch, p_.seqlen_q, p_.rows_q, row);
        if (of.n < 0) return;
        rotate(at(p_.q, of.row_batch, of.row, h), at(p_.q_out, of.row_batch, of.row, h), query_position(p_, of, row));
    }

private:
    char* at(const DeviceTensor& x, int64_t batch, int64_t row, int64_t h) const {
        return static_cast<char*>(x.data) + (batch * x.stride_batch + row * x.stride_row + h * x.stride_head) * width_;
    }

    // The row at `to`, which may be `from`.
    void rotate(const char* from, char* to, int64_t position) const {
        if (to != from) memcpy(to, from, static_cast<size_t>(p_.head_dim * width_));
        if (p_.pairs == 0) return;
        const int64_t pairs = p_.pairs;
        float cos[kMostPairs], sin[kMostPairs], row[2 * kMostPairs];
        load_row(problem_.table_dtype, table(p_.cos, position * p_.cos_stride), pairs, cos);
        load_row(problem_.table_dtype, table(p_.sin, position * p_.sin_stride), pairs, sin);
        load_row(problem_.dtype, from + p_.rotary_begin * width_, 2 * pairs, row);
        const int64_t next = p_.interleaved != 0 ? 2 : 1, across = p_.interleaved != 0 ? 1 : pairs;
        for (int64_t n = 0; n < pairs; ++n) {
            const Pair turned = rotated({row[n * next], row[n * next + across]}, cos[n], sin[n]);
            row[n * next] = turned.x;
            row[n * next + across] = turned.y;
        }
        store_row(problem_.dtype, row, 2 * pairs, to + p_.rotary_begin * width_);
    }

    const void* table(const void* of, int64_t element) const {
        return static_cast<const char*>(of) + element * element_size(problem_.table_dtype);
    }

    static constexpr int kMostPairs = kMostAppendedColumns / 2;

    const AppendProblem& problem_;
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
