// rotary.h: the rotary embedding of one row in fp32, for what is appended to a cache or quantised. How a pair is
// rotated stands in shared/append_params.h.
#pragma once

#include "core/append_problem.h"
#include "cpu/isa/convert.h"
#include "cpu/kernels/head.h"
#include "shared/append_params.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// cos and sin of (positions, pairs).
struct RotaryTable {
    DType dtype;
    const void *cos, *sin;
    int64_t cos_stride, sin_stride;
    int64_t pairs;
    bool interleaved;
};

// `row` starts at the first column that is rotated.
inline void rotate_row(const RotaryTable& table, int64_t position, float* row) {
    constexpr int kMostPairs = kMostAppendedColumns / 2;
    const int64_t pairs = table.pairs;
    float cos[kMostPairs], sin[kMostPairs];
    const auto entry = [&](const void* of, int64_t element) {
        return static_cast<const char*>(of) + element * element_size(table.dtype);
    };
    load_row(table.dtype, entry(table.cos, position * table.cos_stride), pairs, cos);
    load_row(table.dtype, entry(table.sin, position * table.sin_stride), pairs, sin);
    const int64_t next = table.interleaved ? 2 : 1, across = table.interleaved ? 1 : pairs;
    for (int64_t n = 0; n < pairs; ++n) {
        const Pair turned = rotated({row[n * next], row[n * next + across]}, cos[n], sin[n]);
        row[n * next] = turned.x;
        row[n * next + across] = turned.y;
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
