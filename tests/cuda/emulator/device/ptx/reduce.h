// reduce.h: additions to global memory that return nothing.
#pragma once

namespace flashtile::ptx {

inline void red_add(float* to, float x) {
    *to += x;
}

inline void red_add4(float* to, const float (&x)[4]) {
    if (reinterpret_cast<unsigned long>(to) % 16 != 0)
        emulator_runtime->fail("adds four at an address that is not aligned:", reinterpret_cast<unsigned long>(to));
    for (int n = 0; n < 4; ++n) to[n] += x[n];
}

}  // namespace flashtile::ptx
