// sizes.h: arithmetic on sizes and places. What is compiled once an instruction set has functions of its own for it,
// since it may use no std template (src/cpu/kernels/README.md).
#pragma once

#include <stdint.h>

namespace flashtile {
inline namespace FLASHTILE_TARGET {

inline int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}
inline int64_t greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}
inline int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : (x > high ? high : x);
}
inline int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
