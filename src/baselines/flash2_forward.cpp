// flash2_forward.cpp: Algorithm 1 of the FlashAttention-2 paper, whose lines the comments number, with the mask and the
// dropout of the first FlashAttention.
#include "baselines/flash2.h"

#include <cmath>
#include <limits>

namespace flashtile::baselines {

template <class Count>
void flash2_forward(const Flash2Forward& head, const HeadMasking& mask, Tile tile, float scale, std::int64_t first,
                    std::int64_t end, Memory<Count> memory) {
    const auto [Br, Bc] = tile;
    const std::int64_t d = head.Q.columns();
    Block Q = memory.hold(Br, d), O = memory.hold(Br, d), K = memory.hold(Bc, d), V = memory.hold(Bc, d);
    Block l = memory.hold(Br, 1), m = memory.hold(Br, 1);  // l becomes L
    Block P = memory.hold(Br, Bc);                         // S first
    Block Z = memory.hold(mask.drops() ? 1 : 0, Bc);

    for (std::int64_t i0 = first; i0 < end; i0 += Br) {  // 3
        // 4, 5
        memory.load(head.Q, i0, Br, Q);
        O.reshape(Q.rows(), d), O.fill(0.0f);
        l.reshape(Q.rows(), 1), l.fill(0.0f);
        m.reshape(Q.rows(), 1), m.fill(-std::numeric_limits<float>::infinity());
        for (std::int64_t j0 = 0; j0 < head.K.rows(); j0 += Bc) {  // 6
            if (mask.skips(i0, j0)) continue;
            // 7
            memory.load(head.K, j0, Bc, K);
            memory.load(head.V, j0, Bc, V);
            if (!memory.computes()) continue;
            // 8: S = Q_i K_j^T
            P.reshape(Q.rows(), K.rows());
            gemm(scale, Q.matrix(), Transpose::no, K.matrix(), Transpose::yes, 0.0f, P.matrix());
            for (std::int64_t r = 0; r < P.rows(); ++r) {
                float* p = P.row(r);
                const std::int64_t visible = mask.visible(i0 + r, j0, P.columns());
                std::fill(p + visible, p + P.columns(), 0.0f);
                if (visible == 0) continue;
                // 9: m_new = max(m, rowmax(S)), P~ = exp(S - m_new), l = e^(m - m_new) l + rowsum(P~)
                const float m_new = std::max(m[r], row_max(p, visible));
                const float alpha = std::exp(m[r] - m_new);
                l[r] = alpha * l[r] + exp_row(p, m_new, p, visible);
                m[r] = m_new;
                if (mask.drops()) {
                    mask.draw(i0 + r, j0, visible, Z.row(0));
                    multiply_row(Z.row(0), p, visible);
                }
                // 10, the factor: O = diag(e^(m - m_new)) O + P~ V_j
                scale_row(alpha, O.row(r), d);
            }
            // 10, the product
            gemm(1.0f, P.matrix(), Transpose::no, V.matrix(), Transpose::no, 1.0f, O.matrix());
        }
        if (memory.computes())
            for (std::int64_t r = 0; r < O.rows(); ++r) {
                if (l[r] != 0.0f) scale_row(1.0f / l[r], O.row(r), d);  // 12; a query that sees no key has O = 0
                l[r] = m[r] + std::log(l[r]);                           // 13
            }
        // 14, 15
        memory.store(O, head.O, i0);
        memory.store(l, head.L, i0);
    }
}

template void flash2_forward(const Flash2Forward&, const HeadMasking&, Tile, float, std::int64_t, std::int64_t,
                             Memory<Uncounted>);
template void flash2_forward(const Flash2Forward&, const HeadMasking&, Tile, float, std::int64_t, std::int64_t,
                             Memory<Counted>);

void flash2_forward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                    const float* v, float* out, float* L, int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t Tr = (shape.seqlen_q + tile.Br - 1) / tile.Br;
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.heads * Tr, threads, [&](std::int64_t begin, std::int64_t end) {
        Uncounted count;
        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / Tr / shape.heads;
            const std::int64_t h = index / Tr % shape.heads;
            const std::int64_t i0 = index % Tr * tile.Br;
            const Flash2Forward head{query_head(shape, q, b, h), key_head(shape, k, b, h / group),
                                     key_head(shape, v, b, h / group), query_head(shape, out, b, h),
                                     vector_head(shape, L, b, h)};
            flash2_forward(head, HeadMasking(shape, masking, tile, b, h), tile, shape.scale, i0,
                           std::min(i0 + tile.Br, shape.seqlen_q), Memory(count));
        }
    });
}

}  // namespace flashtile::baselines
