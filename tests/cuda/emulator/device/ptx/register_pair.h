// register_pair.h: two numbers in a register of 64 bits.
#pragma once

namespace flashtile::ptx {

inline unsigned long long join(float first, float second) {
    return static_cast<unsigned long long>(__float_as_uint(second)) << 32 | __float_as_uint(first);
}

inline float2 split(unsigned long long both) {
    return {__uint_as_float(static_cast<unsigned>(both)), __uint_as_float(static_cast<unsigned>(both >> 32))};
}

}  // namespace flashtile::ptx
