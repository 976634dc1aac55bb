// tiles.h: a model of src/cpu/isa/tiles.h for machines without a tile unit: the same functions in plain C++ with the
// bits that Intel's manual gives TDPBF16PS, and, like the unit, an end to the process that uses tiles outside a
// session. The library that the tests build with it finds this folder before src.
#pragma once

#include <stdlib.h>

#include "cpu/isa/vector.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;

struct TileUnit {
    bool in_session = false;
    alignas(64) char tile[8][kTileRows * kTileRowBytes];
};
inline thread_local TileUnit tile_unit;

inline char* tile_row(int tile, int64_t row) {
    if (!tile_unit.in_session) abort();
    return tile_unit.tile[tile] + row * kTileRowBytes;
}

class TileSession {
public:
    TileSession() {
        if (tile_unit.in_session) abort();
        memset(tile_unit.tile, 0, sizeof tile_unit.tile);
        tile_unit.in_session = true;
    }
    ~TileSession() { tile_unit.in_session = false; }
    TileSession(const TileSession&) = delete;
    TileSession& operator=(const TileSession&) = delete;
};

template <int T>
inline void tile_zero() {
    memset(tile_row(T, 0), 0, sizeof tile_unit.tile[T]);
}
template <int T>
inline void tile_load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < kTileRows; ++r)
        memcpy(tile_row(T, r), static_cast<const char*>(from) + r * stride, kTileRowBytes);
}
template <int T>
inline void tile_stream(const void* from, int64_t stride) {
    tile_load<T>(from, stride);
}
template <int T>
inline void tile_store(void* to, int64_t stride) {
    for (int64_t r = 0; r < kTileRows; ++r) memcpy(static_cast<char*>(to) + r * stride, tile_row(T, r), kTileRowBytes);
}

// Neither reads a denormal nor returns one.
inline Vec tile_flush(Vec x) {
    const Vec magnitude = reinterpret_cast<Vec>(reinterpret_cast<IntVec>(x) & 0x7FFFFFFF);
    return magnitude < 0x1p-126f ? Vec{} : x;
}
inline Vec tile_widen(IntVec high_half) {
    return tile_flush(reinterpret_cast<Vec>(high_half));
}

// Even and odd elements of the reduction are summed apart from 0, and their sum is added to C.
template <int C, int A, int B>
inline void tile_multiply_add() {
    const auto high = static_cast<int32_t>(0xFFFF0000u);
    Vec even_b[kTileRows], odd_b[kTileRows];
    for (int64_t k = 0; k < kTileRows; ++k) {
        IntVec pairs;
        memcpy(&pairs, tile_row(B, k), sizeof pairs);
        even_b[k] = tile_widen(pairs << 16);
        odd_b[k] = tile_widen(pairs & high);
    }
    for (int64_t m = 0; m < kTileRows; ++m) {
        IntVec pairs;
        memcpy(&pairs, tile_row(A, m), sizeof pairs);
        const Vec even_a = tile_widen(pairs << 16), odd_a = tile_widen(pairs & high);
        Vec even{}, odd{};
        for (int k = 0; k < kTileRows; ++k) {
            even = tile_flush(_mm512_fmadd_ps(broadcast(even_a[k]), even_b[k], even));
            odd = tile_flush(_mm512_fmadd_ps(broadcast(odd_a[k]), odd_b[k], odd));
        }
        Vec c;
        memcpy(&c, tile_row(C, m), sizeof c);
        c = tile_flush(tile_flush(c) + tile_flush(even + odd));
        memcpy(tile_row(C, m), &c, sizeof c);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
