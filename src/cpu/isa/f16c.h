// f16c.h: one fp16 element to and from fp32, on x86-64 with F16C.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline float fp16_to_float(uint16_t half) {
    return _cvtsh_ss(half);
}
inline uint16_t float_to_fp16(float x) {
    return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
