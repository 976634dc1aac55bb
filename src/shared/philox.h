// philox.h: the dropout mask. Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011: the smallest count that passes BigCrush) gives eight 16-bit draws a call. Whether probability (b, h, i, j)
// is dropped is a pure function of (seed, offset, b, h, i, j): the same on every backend, kernel and tile size, in
// forward and in backward, and stored nowhere. Included by the host compiler and by NVRTC; includes nothing.
//
// Packing, which never changes:
//   key     = { low 32 bits of seed, high 32 bits of seed XOR high 32 bits of offset }
//   counter = { row group, column group, b << 12 | h, low 32 bits of offset }
//   row group    = i with bit 3 taken out:        (i >> 4) << 3 | (i & 7)
//   column group = j with bits 0 and 3 taken out: (j >> 4) << 2 | (j >> 1 & 3)
// so that one call covers rows {i, i^8} and columns {j, j^1, j^8, j^9}: the elements that one thread holds of an
// m16n8k16 A fragment. Element (i, j) draws from output word (i >> 3 & 1) + 2 * (j >> 3 & 1), the low half if j is even
// and the high half if it is odd.
// Limits: i, j < 2^32; b < 2^20; h < 2^12. In packed batches b, i, j are the sequence's own.
#pragma once

#ifndef FLASHTILE_TARGET
#define FLASHTILE_TARGET generic
#endif

#ifndef FLASHTILE_DEVICE
#ifdef __CUDACC__
#define FLASHTILE_DEVICE __device__ __forceinline__
#else
#define FLASHTILE_DEVICE inline
#endif
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct Philox {
    unsigned word[4];
};

struct Product {
    unsigned low, high;
};

// It is one instruction of a GPU. Left to itself, the compiler takes some factors for numbers of 64 bits, and uses two
// instructions.
FLASHTILE_DEVICE Product wide_product(unsigned a, unsigned b) {
#if defined(__CUDA_ARCH__) && !defined(FLASHTILE_EMULATOR)
    Product product;
    asm("{ .reg .b64 wide; mul.wide.u32 wide, %2, %3; mov.b64 {%0, %1}, wide; }"
        : "=r"(product.low), "=r"(product.high)
        : "r"(a), "r"(b));
    return product;
#else
    const unsigned long long product = static_cast<unsigned long long>(a) * b;
    return {static_cast<unsigned>(product), static_cast<unsigned>(product >> 32)};
#endif
}

template <int kRounds>
FLASHTILE_DEVICE Philox philox4x32(Philox counter, unsigned key0, unsigned key1) {
    for (int round = 0; round < kRounds; ++round) {
        const Product product0 = wide_product(counter.word[0], 0xD2511F53u);
        const Product product1 = wide_product(counter.word[2], 0xCD9E8D57u);
        counter = {{product1.high ^ counter.word[1] ^ key0, product1.low, product0.high ^ counter.word[3] ^ key1,
                    product0.low}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

// The dropout of one head: p is honoured to 1/65536. `threshold` is t = round(65536 p); a draw below t is dropped, and
// kept probabilities are multiplied by 65536 / (65536 - t).
struct Dropout {
    unsigned key0;
    unsigned key1;
    unsigned head;    // b << 12 | h
    unsigned offset;  // low half
    unsigned threshold;

    FLASHTILE_DEVICE static Dropout make(unsigned long long seed, unsigned long long offset64, unsigned b, unsigned h,
                                         unsigned threshold) {
        return {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32) ^ static_cast<unsigned>(offset64 >> 32),
                b << 12 | h, static_cast<unsigned>(offset64), threshold};
    }

    FLASHTILE_DEVICE static unsigned row_group(unsigned i) { return i >> 4 << 3 | (i & 7); }
    FLASHTILE_DEVICE static unsigned column_group(unsigned j) { return j >> 4 << 2 | (j >> 1 & 3); }

    FLASHTILE_DEVICE Philox draw(unsigned rows, unsigned columns) const {
        return philox4x32<7>({{rows, columns, head, offset}}, key0, key1);
    }

    FLASHTILE_DEVICE bool keeps(unsigned i, unsigned j) const {
        const unsigned word = draw(row_group(i), column_group(j)).word[(i >> 3 & 1) + 2 * (j >> 3 & 1)];
        return ((j & 1) != 0 ? word >> 16 : word & 0xFFFFu) >= threshold;
    }

    // What kept values are multiplied by.
    FLASHTILE_DEVICE static float scale(unsigned threshold) {
        return 65536.0f / static_cast<float>(65536u - threshold);
    }
    FLASHTILE_DEVICE float scale() const { return scale(threshold); }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
