// panel.h: brings blocks of rows into the layouts that product.h reads.
//   transposed panel  [col][kPanel]: kPanel rows side by side, one lane for each (Q^T, dO^T, a tile of bias or mask)
//   rows operand      A(r, s) is element s of row r: K for S, V for dP
//   columns operand   A(r, s) is element s of column r: V for O, K for dQ
// fp32 rows of K and V are read in place where they lie close together. 16-bit and e4m3 rows are widened to fp32 once a
// block, these times their scales; or 16-bit ones stay 16-bit in pairs for Bf16Math and for tiles. For tiles, fp16 is
// split into two bf16 parts.
#pragma once

#include "cpu/isa/bf16_math.h"
#include "cpu/kernels/head.h"
#include "cpu/kernels/product.h"
#if defined(FLASHTILE_TILES)
#include "cpu/kernels/tile_softmax.h"
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// dst = row `row` of x in fp32: of e4m3 what its elements stand for.
template <class AnyRows>
inline void load_row_of(const AnyRows& x, int64_t row, int64_t first_col, int64_t cols, float* dst) {
    load_row(x.dtype, x.at(row, first_col), cols, dst);
    const float scale = x.scale_of(row);
    if (scale == 1.0f) return;
    for (int64_t n = 0; n < cols; ++n) dst[n] *= scale;
}

// panel[col][lane] = factor * rows(first_row + lane, first_col + col) for lane < count, and 0 in the other lanes.
// `row_buffer` holds kLanes rows of round_up(cols, kLanes) floats.
template <class AnyRows>
inline void load_panel(const AnyRows& rows, int64_t first_row, int64_t count, int64_t first_col, int64_t cols,
                       float factor, float* row_buffer, float* panel) {
    const int64_t width = round_up(cols, kLanes);
    // Whole vectors of fp32 are read in place. Other rows are first widened or padded with zeros in the buffer.
    const bool in_place = rows.dtype == DType::fp32 && rows.stride_col == 1 && width == cols;
    for (int64_t half = 0; half < kPanel; half += kLanes) {
        const float* source[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            float* row = row_buffer + lane * width;
            const bool present = half + lane < count;
            const char* src = present ? rows.at(first_row + half + lane, first_col) : nullptr;
            if (present && in_place) {
                source[lane] = reinterpret_cast<const float*>(src);
                continue;
            }
            source[lane] = row;
            if (present && rows.stride_col == 1) {
                load_row_of(rows, first_row + half + lane, first_col, cols, row);
            } else {
                const float same = present ? load_element(rows.dtype, src, 0) : 0.0f;
                for (int64_t c = 0; c < cols; ++c) row[c] = same;
            }
            for (int64_t c = cols; c < width; ++c) row[c] = 0.0f;
        }
        for (int64_t c0 = 0; c0 < cols; c0 += kLanes) {
            Vec tile[kLanes];
            FLASHTILE_UNROLL
            for (int n = 0; n < kLanes; ++n) tile[n] = load(source[n] + c0) * factor;
            transpose(tile);
            if (c0 + kLanes <= cols) {
                FLASHTILE_UNROLL
                for (int n = 0; n < kLanes; ++n) store(panel + (c0 + n) * kPanel + half, tile[n]);
            } else {
                for (int64_t n = 0; c0 + n < cols; ++n) store(panel + (c0 + n) * kPanel + half, tile[n]);
            }
        }
    }
}

// rows(first_row + lane, col) = panel[col][lane] * factor[lane] for lane < count, in the rows' type.
inline void store_panel(const float* panel, int64_t cols, const float* factor, float* row_buffer, const Rows& rows,
                        int64_t first_row, int64_t count) {
    const int64_t width = round_up(cols, kLanes);
    for (int64_t half = 0; half < count; half += kLanes) {
        const Vec f = load(factor + half);
        for (int64_t c0 = 0; c0 < cols; c0 += kLanes) {
            Vec tile[kLanes];
            FLASHTILE_UNROLL
            for (int n = 0; n < kLanes; ++n)
                tile[n] = c0 + n < cols ? load(panel + (c0 + n) * kPanel + half) * f : Vec{};
            transpose(tile);
            FLASHTILE_UNROLL
            for (int n = 0; n < kLanes; ++n) store(row_buffer + n * width + c0, tile[n]);
        }
        for (int64_t lane = 0; lane < kLanes && half + lane < count; ++lane)
            store_row(rows.dtype, row_buffer + lane * width, cols, rows.at(first_row + half + lane));
    }
}

// An A operand of product.h.
template <class Math>
struct Operand2d {
    const typename Math::Scalar* data;
    int64_t row;
    int64_t step;
};

// steps_of: how many steps a reduction over n elements has. words_of: how many words a row has if the product sums over
// its columns. A word is a Scalar; where Math splits elements into parts, it is a Scalar for each part.
template <class Math>
inline int64_t steps_of(int64_t n) {
    return (n + Math::kStep - 1) / Math::kStep;
}
template <class Math>
inline int64_t words_of(int64_t cols) {
    return steps_of<Math>(cols) * (Math::kStep / Math::kPack);
}

// How many Scalars a panel has when it is packed for a product that sums over its columns.
template <class Math>
inline int64_t packed_panel_size(int64_t cols) {
    return words_of<Math>(cols) * Math::kParts * kPanel;
}

// row_step: the distance of copied rows in Scalars. It is a little more than a row, so that the elements of one column
// fall into different sets of the cache.
// lies_close: whether rows are near enough to be read in place. Rows of one head among many often lie a power of
// two apart. The elements of one column would then all compete for one cache set, so such rows are copied.
template <class Math>
inline int64_t row_step(int64_t cols) {
    return round_up((cols + Math::kPack - 1) / Math::kPack, kLanes) * Math::kParts + kLanes;
}
template <class AnyRows>
inline bool lies_close(const AnyRows& x, int64_t cols) {
    return x.stride_row <= 2 * cols;
}
template <>
inline bool lies_close(const KeyRows& x, int64_t cols) {
    return !x.paged() && x.stride_row <= 2 * cols;
}

// Copies rows [first, end) to the buffer, row_step(cols) apart.
template <class Math, class AnyRows>
inline void copy_rows(const AnyRows& x, int64_t first, int64_t end, int64_t cols, typename Math::Scalar* buffer) {
    for (int64_t r = first; r < end; ++r) {
        typename Math::Scalar* row = buffer + (r - first) * row_step<Math>(cols);
        if constexpr (Math::kPack == 1) {
            load_row_of(x, r, 0, cols, row);
        } else if constexpr (Math::kParts > 1) {
            Math::split_row(reinterpret_cast<const uint16_t*>(x.at(r)), cols, row);
        } else {
            // zeros beside a last odd column, and up to the end of the last step
            for (int64_t word = cols / 2; word < words_of<Math>(cols); ++word) row[word] = 0;
            memcpy(row, x.at(r), static_cast<size_t>(cols) * 2);
        }
    }
}

// Rows [first, end) as a rows operand, read in place where possible.
template <class Math, class AnyRows>
inline Operand2d<Math> rows_operand(const AnyRows& x, int64_t first, int64_t end, int64_t cols,
                                    typename Math::Scalar* buffer) {
    const bool whole = Math::kPack == 1 ? x.dtype == DType::fp32 : cols % 2 == 0 && x.stride_row % 2 == 0;
    if (!Math::kTiles && whole && lies_close(x, cols))  // a tile load reads 16 rows and whole steps
        return {reinterpret_cast<const typename Math::Scalar*>(x.at(first)), x.stride_row / Math::kPack, 1};
    copy_rows<Math>(x, first, end, cols, buffer);
    return {buffer, row_step<Math>(cols), 1};
}

// Whether no element of rows [first, end) is infinite or NaN; false where that is not looked for.
template <class AnyRows>
inline bool all_finite(const AnyRows& x, int64_t first, int64_t end, int64_t cols) {
    const bool fp32 = x.dtype == DType::fp32;
    if (!fp32 && x.dtype != DType::fp16 && x.dtype != DType::bf16) return false;
    // The exponent, of each half where elements have 16 bits: all of its bits are 1 in infinities and NaN.
    const int32_t high = fp32 ? 0x7f800000 : x.dtype == DType::fp16 ? 0x7c000000 : 0x7f800000;
    const int32_t low = fp32 ? 0 : high >> 16;
    const int64_t bytes = cols * (fp32 ? 4 : 2), vectors = bytes / static_cast<int64_t>(sizeof(IntVec));
    IntVec found{};
    const auto look = [&](IntVec words) {
        found |= (words & high) == high;
        if (!fp32) found |= (words & low) == low;
    };
    for (int64_t r = first; r < end; ++r) {
        const char* row = x.at(r);
        for (int64_t n = 0; n < vectors; ++n) {
            IntVec words;
            memcpy(&words, row + n * static_cast<int64_t>(sizeof words), sizeof words);
            look(words);
        }
        IntVec rest{};
        memcpy(&rest, row + vectors * static_cast<int64_t>(sizeof rest),
               static_cast<size_t>(bytes - vectors * static_cast<int64_t>(sizeof rest)));
        look(rest);
    }
    return !any(found);
}

// The distance of copied steps of a columns operand in Scalars. A step is one row, two rows, or for tiles 32.
template <class Math>
inline int64_t column_step(int64_t cols) {
    if constexpr (Math::kTiles) return Math::tile_step(cols);
    return round_up(cols, kLanes) + kLanes;
}

// Copies rows [first, end) to the buffer in steps, column_step(cols) apart. A row for which visible[r - first] is 0
// becomes zeros, so that what lies in a hidden row has no effect. If `visible` is null, all rows are copied.
template <class Math, class AnyRows>
inline void copy_columns(const AnyRows& x, int64_t first, int64_t end, int64_t cols, const uint8_t* visible,
                         typename Math::Scalar* buffer) {
    const int64_t step = column_step<Math>(cols);
    const auto shown = [&](int64_t r) { return r < end && (visible == nullptr || visible[r - first] != 0); };
    if constexpr (Math::kPack == 1) {
        for (int64_t r = first; r < end; ++r) {
            float* row = buffer + (r - first) * step;
            if (shown(r)) {
                load_row_of(x, r, 0, cols, row);
            } else {
                memset(row, 0, static_cast<size_t>(cols) * sizeof(float));
            }
        }
    } else {
        const auto source = [&](int64_t r) { return shown(r) ? reinterpret_cast<const uint16_t*>(x.at(r)) : nullptr; };
        for (int64_t r = first; r < end; r += Math::kStep) {
            uint32_t* to = buffer + (r - first) / Math::kStep * step;
            if constexpr (Math::kTiles)
                pack_tiles<Math>([&](int64_t n) { return source(r + n); }, cols, to);
            else
                interleave<Math>(source(r), source(r + 1), cols, to, 0);
        }
    }
}

// Rows [first, end) as a columns operand, read in place where possible.
template <class Math, class AnyRows>
inline Operand2d<Math> columns_operand(const AnyRows& x, int64_t first, int64_t end, int64_t cols,
                                       const uint8_t* visible, typename Math::Scalar* buffer) {
    if constexpr (Math::kPack == 1)
        if (x.dtype == DType::fp32 && visible == nullptr && lies_close(x, cols))
            return {reinterpret_cast<const float*>(x.at(first)), 1, x.stride_row};
    copy_columns<Math>(x, first, end, cols, visible, buffer);
    return {buffer, 1, column_step<Math>(cols)};
}

// Does what load_panel does, packed for a product that sums over the panel's columns. `factor` is 1 or -1.
template <class Math, class AnyRows>
inline void load_packed_panel(const AnyRows& rows, int64_t first_row, int64_t count, int64_t cols, float factor,
                              float* row_buffer, typename Math::Scalar* packed) {
    if constexpr (Math::kPack == 1) {
        load_panel(rows, first_row, count, 0, cols, factor, row_buffer, packed);
    } else {
        // A pair of 16-bit columns is one word. Words are transposed as if they were floats; only their signs may
        // change.
        const int64_t words = (cols + 1) / 2, width = round_up(words, kLanes);
        const IntVec sign = broadcast_int(factor < 0.0f ? static_cast<int32_t>(0x80008000u) : 0);
        for (int64_t half = 0; half < kPanel; half += kLanes) {
            const float* source[kLanes];
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                const bool present = half + lane < count;
                const char* src = present ? rows.at(first_row + half + lane) : nullptr;
                source[lane] = reinterpret_cast<const float*>(src);
                if (present && 2 * width == cols) continue;
                float* row = row_buffer + lane * width;
                memset(row, 0, static_cast<size_t>(width) * sizeof(float));
                if (present) memcpy(row, src, static_cast<size_t>(cols) * 2);
                source[lane] = row;
            }
            for (int64_t w0 = 0; w0 < words; w0 += kLanes) {
                Vec tile[kLanes];
                FLASHTILE_UNROLL
                for (int n = 0; n < kLanes; ++n) tile[n] = load(source[n] + w0);
                transpose(tile);
                for (int64_t n = 0; n < kLanes && w0 + n < words_of<Math>(cols); ++n) {
                    const IntVec pairs = reinterpret_cast<IntVec>(tile[n]) ^ sign;
                    Math::store_words(packed + (w0 + n) * Math::kParts * kPanel + half, kPanel, pairs);
                }
            }
        }
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
