// masking.h: what the algorithms of the FlashAttention paper take beside the matrices: MASK, dropout, and the blocks
// of block-sparse attention (its Algorithm 5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "baselines/row_softmax.h"
#include "baselines/standard_attention.h"
#include "shared/philox.h"

namespace flashtile::baselines {

struct Tile {
    std::int64_t Br;  // rows of a block of queries
    std::int64_t Bc;  // rows of a block of keys
};

// Beside the causal mask, which is in Shape.
struct Masking {
    const std::int64_t* key_lengths = nullptr;  // (batch): keys from there on are padding
    const std::uint8_t* blocks = nullptr;       // (Tr, Tc), row-major: only blocks that are not 0 are computed
    double dropout = 0.0;                       // p_drop
    std::uint64_t seed = 0;                     // R: draws are a function of it and of the place (shared/philox.h)
};

// The same for one head. What a query sees is a number of first keys, which grows with i.
class HeadMasking {
public:
    HeadMasking(const Shape& shape, const Masking& masking, Tile tile, std::int64_t b, std::int64_t h)
        : seqlen_q_(shape.seqlen_q),
          seqlen_k_(shape.seqlen_k),
          keys_(masking.key_lengths ? masking.key_lengths[b] : shape.seqlen_k),
          causal_(shape.causal),
          tile_(tile),
          blocks_(masking.blocks),
          dropout_(Dropout::make(masking.seed, 0, static_cast<unsigned>(b), static_cast<unsigned>(h),
                                 static_cast<unsigned>(std::lround(65536.0 * masking.dropout)))) {}

    // Whether the block of queries from i0 on has nothing to do with the block of keys from j0 on.
    bool skips(std::int64_t i0, std::int64_t j0) const {
        const std::int64_t last = std::min(i0 + tile_.Br, seqlen_q_) - 1;
        const std::int64_t Tc = (seqlen_k_ + tile_.Bc - 1) / tile_.Bc;
        return visible(last) <= j0 || (blocks_ && blocks_[i0 / tile_.Br * Tc + j0 / tile_.Bc] == 0);
    }

    // Of the keys j0 .. j0 + columns query i sees so many first ones.
    std::int64_t visible(std::int64_t i, std::int64_t j0, std::int64_t columns) const {
        return std::clamp<std::int64_t>(visible(i) - j0, 0, columns);
    }

    bool drops() const { return dropout_.threshold != 0; }

    // Z of query i and the keys from j0 on: 0, or 1 / (1 - p_drop).
    void draw(std::int64_t i, std::int64_t j0, std::int64_t columns, float* Z) const {
        for (std::int64_t c = 0; c < columns; ++c)
            Z[c] = dropout_.keeps(static_cast<unsigned>(i), static_cast<unsigned>(j0 + c)) ? dropout_.scale() : 0.0f;
    }

    // Of the same query and keys: P_dropped = P o Z, and the gradient of P_dropped becomes that of P. Z is what is
    // drawn.
    void drop(std::int64_t i, std::int64_t j0, std::int64_t columns, const float* P, float* Z, float* P_dropped,
              float* dP) const {
        draw(i, j0, columns, Z);
        std::copy_n(P, columns, P_dropped);
        multiply_row(Z, P_dropped, columns);
        multiply_row(Z, dP, columns);
    }

private:
    std::int64_t visible(std::int64_t i) const {
        return causal_ ? std::min(keys_, causal_keys(i, seqlen_q_, seqlen_k_)) : keys_;
    }

    std::int64_t seqlen_q_;
    std::int64_t seqlen_k_;
    std::int64_t keys_;
    bool causal_;
    Tile tile_;
    const std::uint8_t* blocks_;
    Dropout dropout_;
};

}  // namespace flashtile::baselines
