// permute.h: bytes of a word in any order.
#pragma once

namespace flashtile::ptx {

inline unsigned permute(unsigned x, unsigned selector) {
    unsigned y = 0;
    for (int n = 0; n < 4; ++n) {
        const unsigned digit = selector >> 4 * n & 15;
        const unsigned byte = (digit & 7) < 4 ? x >> (digit & 7) * 8 & 0xFF : 0;  // the second word is 0
        y |= (digit < 8 ? byte : (byte & 0x80) != 0 ? 0xFF : 0) << 8 * n;
    }
    return y;
}

}  // namespace flashtile::ptx
