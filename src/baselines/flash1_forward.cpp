// flash1_forward.cpp: Algorithm 2 of the FlashAttention paper (appendix B.3); without mask and dropout it is
// Algorithm 1. Numbers in comments are the lines of Algorithm 2.
#include <cmath>
#include <limits>

#include "baselines/flash1.h"

namespace flashtile::baselines {

template <class Count>
void flash1_forward(const Flash1Forward& head, const HeadMasking& mask, Tile tile, float tau, Memory<Count> memory) {
    const auto [Br, Bc] = tile;
    const std::int64_t d = head.Q.columns();
    Block K = memory.hold(Bc, d), V = memory.hold(Bc, d), Q = memory.hold(Br, d), O = memory.hold(Br, d);
    Block l = memory.hold(Br, 1), m = memory.hold(Br, 1);
    Block P = memory.hold(Br, Bc);  // S_ij first
    Block Z = memory.hold(mask.drops() ? 1 : 0, Bc);

    // 3
    memory.fill(head.O, 0.0f);
    memory.fill(head.l, 0.0f);
    memory.fill(head.m, -std::numeric_limits<float>::infinity());
    for (std::int64_t j0 = 0; j0 < head.K.rows(); j0 += Bc) {  // 6
        // 7
        memory.load(head.K, j0, Bc, K);
        memory.load(head.V, j0, Bc, V);
        for (std::int64_t i0 = 0; i0 < head.Q.rows(); i0 += Br) {  // 8
            if (mask.skips(i0, j0)) continue;                      // Algorithm 5, line 8
            // 9
            memory.load(head.Q, i0, Br, Q);
            memory.load(head.O, i0, Br, O);
            memory.load(head.l, i0, Br, l);
            memory.load(head.m, i0, Br, m);
            if (memory.computes()) {
                // 10: S_ij = tau Q_i K_j^T
                P.reshape(Q.rows(), K.rows());
                gemm(tau, Q.matrix(), Transpose::no, K.matrix(), Transpose::yes, 0.0f, P.matrix());
                for (std::int64_t r = 0; r < P.rows(); ++r) {
                    float* p = P.row(r);
                    // 11: the keys that MASK hides are the last ones of the row. Where it hides all, nothing changes.
                    const std::int64_t visible = mask.visible(i0 + r, j0, P.columns());
                    std::fill(p + visible, p + P.columns(), 0.0f);
                    if (visible == 0) continue;
                    // 12: m~ = rowmax(S), P~ = exp(S - m~), l~ = rowsum(P~)
                    const float m_block = row_max(p, visible);
                    const float l_block = exp_row(p, m_block, p, visible);
                    // 13: m_new = max(m, m~), l_new = e^(m - m_new) l + e^(m~ - m_new) l~
                    const float m_new = std::max(m[r], m_block);
                    const float old_part = std::exp(m[r] - m_new) * l[r];
                    const float block_part = std::exp(m_block - m_new);
                    const float l_new = old_part + block_part * l_block;
                    // 14
                    if (mask.drops()) {
                        mask.draw(i0 + r, j0, visible, Z.row(0));
                        multiply_row(Z.row(0), p, visible);
                    }
                    // 15, the factors: O_i = diag(l_new)^-1 (l e^(m - m_new) O_i + e^(m~ - m_new) P~_ij V_j)
                    scale_row(old_part / l_new, O.row(r), d);
                    scale_row(block_part / l_new, p, visible);
                    l[r] = l_new;
                    m[r] = m_new;
                }
                // 15, the product
                gemm(1.0f, P.matrix(), Transpose::no, V.matrix(), Transpose::no, 1.0f, O.matrix());
            }
            // 15, 16
            memory.store(O, head.O, i0);
            memory.store(l, head.l, i0);
            memory.store(m, head.m, i0);
        }
    }
}

template void flash1_forward(const Flash1Forward&, const HeadMasking&, Tile, float, Memory<Uncounted>);
template void flash1_forward(const Flash1Forward&, const HeadMasking&, Tile, float, Memory<Counted>);

void flash1_forward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                    const float* v, float* out, float* l, float* m, int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.heads, threads, [&](std::int64_t begin, std::int64_t end) {
        Uncounted count;
        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / shape.heads;
            const std::int64_t h = index % shape.heads;
            const Flash1Forward head{query_head(shape, q, b, h),       key_head(shape, k, b, h / group),
                                     key_head(shape, v, b, h / group), query_head(shape, out, b, h),
                                     vector_head(shape, l, b, h),      vector_head(shape, m, b, h)};
            flash1_forward(head, HeadMasking(shape, masking, tile, b, h), tile, shape.scale, Memory(count));
        }
    });
}

}  // namespace flashtile::baselines
