// flash1.h: FlashAttention, the first: Algorithms 1, 2 and 4 of its paper (arXiv 2205.14135, appendix B), in fp32. Keys
// and values are in the outer loop; O, l and m of every block of queries go to slow memory and back at every step, and
// O is divided by l at every step. Heads run in parallel and nothing else does (FlashAttention-2 paper, section 3.2).
#pragma once

#include "baselines/masking.h"
#include "baselines/memory.h"
#include "baselines/standard_attention.h"

namespace flashtile::baselines {

// Line 2 of Algorithms 2 and 4, for a fast memory of M elements.
inline Tile flash1_tile(std::int64_t M, std::int64_t head_dim) {
    const std::int64_t Bc = (M + 4 * head_dim - 1) / (4 * head_dim);
    return {std::min(Bc, head_dim), Bc};
}

// l and m are (batch, heads, seqlen_q). A query that sees no key has out 0, l 0 and m -inf.
void flash1_forward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                    const float* v, float* out, float* l, float* m, int threads);
void flash1_backward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                     const float* v, const float* out, const float* l, const float* m, const float* dout, float* dq,
                     float* dk, float* dv, int threads);

// One head. There are definitions for Uncounted and Counted.
struct Flash1Forward {
    Slow<const float> Q, K, V;
    Slow<float> O, l, m;
};
template <class Count>
void flash1_forward(const Flash1Forward& head, const HeadMasking& mask, Tile tile, float tau, Memory<Count> memory);

struct Flash1Backward {
    Slow<const float> Q, K, V, O, dO, l, m;
    Slow<float> dQ, dK, dV;
    bool adds_to_keys = false;  // to the dK and dV of another head that shares K and V
};
template <class Count>
void flash1_backward(const Flash1Backward& head, const HeadMasking& mask, Tile tile, float tau, Memory<Count> memory);

}  // namespace flashtile::baselines
