// tiles.h: the tile unit of AMX, with a function for each instruction. It has eight registers of 16 rows of 64 bytes.
// The functions are written in assembly, since the compilers' intrinsics do not say which memory they read and write.
// tests/tile_model has a model of this file in plain C++ for machines without the unit.
#pragma once

#include <stdint.h>

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;

// While a TileSession lives, its thread may use the unit, and all eight registers have their full size. Its end
// releases the registers, so that the operating system need not save them.
class TileSession {
public:
    TileSession() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        for (int n = 0; n < 8; ++n) {
            config.row_bytes[n] = kTileRowBytes;
            config.rows[n] = kTileRows;
        }
        asm volatile("ldtilecfg %0" : : "m"(config));
    }
    ~TileSession() { asm volatile("tilerelease"); }
    TileSession(const TileSession&) = delete;
    TileSession& operator=(const TileSession&) = delete;
};

template <int T>
inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
}

// `stride` is the bytes from one row to the next.
template <int T>
inline void tile_load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
}
// The same for data that is read only once. It does not push other data out of the level-1 cache.
template <int T>
inline void tile_stream(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
inline void tile_store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
}

// C[m][n] += sum over k < 32 of A[m][k] * B[k][n]: C in fp32, A in bf16, B in bf16 with rows 2k and 2k + 1 in pairs.
template <int C, int A, int B>
inline void tile_multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
