// permute.h: bytes of a word in any order.
#pragma once

namespace flashtile::ptx {

inline unsigned permute(unsigned x, unsigned y, unsigned selector) {
    unsigned z = 0;
    for (int n = 0; n < 4; ++n) {
        const unsigned digit = selector >> 4 * n & 15;
        const unsigned byte = ((digit & 7) < 4 ? x : y) >> (digit & 3) * 8 & 0xFF;
        z |= (digit < 8 ? byte : (byte & 0x80) != 0 ? 0xFF : 0) << 8 * n;
    }
    return z;
}
inline unsigned permute(unsigned x, unsigned selector) {
    return permute(x, 0, selector);
}

}  // namespace flashtile::ptx
