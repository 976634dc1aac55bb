// aarch64.h: vector.h's primitives on AArch64: four lanes, 32 registers, fp16 conversions in hardware.
#pragma once

#include "cpu/isa/four_lanes.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

constexpr int kRows = 8;

[[gnu::always_inline]] inline Vec rounded(Vec x) {
    asm("" : "+w"(x));
    return x;
}

inline float fp16_to_float(uint16_t half) {
    __fp16 h;
    memcpy(&h, &half, sizeof h);
    return h;
}
inline uint16_t float_to_fp16(float x) {
    const __fp16 h = static_cast<__fp16>(x);
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}

[[gnu::always_inline]] inline IntVec load_halves(const uint16_t* row, int64_t count) {
    using Halves = uint16_t __attribute__((vector_size(kLanes * 2)));
    Halves halves{};
    if (count >= kLanes)
        memcpy(&halves, row, sizeof halves);
    else
        for (int64_t n = 0; n < count; ++n) halves[n] = row[n];
    return reinterpret_cast<IntVec>(__builtin_convertvector(halves, UintVec));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
