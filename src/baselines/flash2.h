// flash2.h: FlashAttention-2: Algorithms 1 and 2 of its paper (arXiv 2307.08691), in fp32, as plainly as flash1.h has
// the first FlashAttention. Queries are in forward's outer loop, so O stays in fast memory, and it is divided by l
// once. It is what `flashtile io` counts: the CPU backend (src/cpu/kernels) has the same algorithm, with blocks that
// its caches hold by themselves.
#pragma once

#include "baselines/flash1.h"

namespace flashtile::baselines {

// The paper names no rule for a fast memory of M elements. These have that of flash1_tile for their outer loop, which
// in forward is over queries.
inline Tile flash2_forward_tile(std::int64_t M, std::int64_t head_dim) {
    const Tile tile = flash1_tile(M, head_dim);
    return {tile.Bc, tile.Br};
}
inline Tile flash2_backward_tile(std::int64_t M, std::int64_t head_dim) {
    return flash1_tile(M, head_dim);
}

// L is (batch, heads, seqlen_q). A query that sees no key has out 0 and L -inf. Forward runs blocks of queries in
// parallel; backward heads, since atomic additions to dQ (section 3.2) would cost a CPU more than they bring.
void flash2_forward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                    const float* v, float* out, float* L, int threads);
void flash2_backward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                     const float* v, const float* out, const float* L, const float* dout, float* dq, float* dk,
                     float* dv, int threads);

// One head, in forward its queries [first, end), of which first is a multiple of Br. There are definitions for
// Uncounted and Counted.
struct Flash2Forward {
    Slow<const float> Q, K, V;
    Slow<float> O, L;
};
template <class Count>
void flash2_forward(const Flash2Forward& head, const HeadMasking& mask, Tile tile, float scale, std::int64_t first,
                    std::int64_t end, Memory<Count> memory);

struct Flash2Backward {
    Slow<const float> Q, K, V, O, dO, L;
    Slow<float> dQ, dK, dV, D;
    bool adds_to_keys = false;  // to the dK and dV of another head that shares K and V
};
template <class Count>
void flash2_backward(const Flash2Backward& head, const HeadMasking& mask, Tile tile, float scale, Memory<Count> memory);

}  // namespace flashtile::baselines
