// flash1_backward.cpp: Algorithm 4 of the FlashAttention paper (appendix B.4), whose lines the comments number. D is
// computed again at every step, and the mask of dropout is drawn again. A thread takes all query heads that share a key
// head, since dK and dV are sums over them.
#include "baselines/flash1.h"

namespace flashtile::baselines {

template <class Count>
void flash1_backward(const Flash1Backward& head, const HeadMasking& mask, Tile tile, float tau, Memory<Count> memory) {
    const auto [Br, Bc] = tile;
    const std::int64_t d = head.Q.columns();
    Block K = memory.hold(Bc, d), V = memory.hold(Bc, d), dK = memory.hold(Bc, d), dV = memory.hold(Bc, d);
    Block Q = memory.hold(Br, d), O = memory.hold(Br, d), dO = memory.hold(Br, d), dQ = memory.hold(Br, d);
    Block l = memory.hold(Br, 1), m = memory.hold(Br, 1);
    Block P = memory.hold(Br, Bc), dP = memory.hold(Br, Bc);  // S_ij is in P first, dS_ij in dP at last
    Block P_dropped = memory.hold(mask.drops() ? Br : 0, Bc), Z = memory.hold(mask.drops() ? 1 : 0, Bc);

    // 5
    memory.fill(head.dQ, 0.0f);
    if (!head.adds_to_keys) {
        memory.fill(head.dK, 0.0f);
        memory.fill(head.dV, 0.0f);
    }
    for (std::int64_t j0 = 0; j0 < head.K.rows(); j0 += Bc) {  // 6
        // 7
        memory.load(head.K, j0, Bc, K);
        memory.load(head.V, j0, Bc, V);
        // 8
        memory.load_or_clear(head.adds_to_keys, head.dK, j0, Bc, dK);
        memory.load_or_clear(head.adds_to_keys, head.dV, j0, Bc, dV);
        for (std::int64_t i0 = 0; i0 < head.Q.rows(); i0 += Br) {  // 9
            if (mask.skips(i0, j0)) continue;
            // 10
            memory.load(head.Q, i0, Br, Q);
            memory.load(head.O, i0, Br, O);
            memory.load(head.dO, i0, Br, dO);
            memory.load(head.dQ, i0, Br, dQ);
            memory.load(head.l, i0, Br, l);
            memory.load(head.m, i0, Br, m);
            if (memory.computes()) {
                const std::int64_t rows = Q.rows(), columns = K.rows();
                P.reshape(rows, columns);
                dP.reshape(rows, columns);
                if (mask.drops()) P_dropped.reshape(rows, columns);
                // 11: S_ij = tau Q_i K_j^T
                gemm(tau, Q.matrix(), Transpose::no, K.matrix(), Transpose::yes, 0.0f, P.matrix());
                // 17: dP_dropped = dO_i V_j^T
                gemm(1.0f, dO.matrix(), Transpose::no, V.matrix(), Transpose::yes, 0.0f, dP.matrix());
                for (std::int64_t r = 0; r < rows; ++r) {
                    float* p = P.row(r);
                    float* dp = dP.row(r);
                    // 12, 13: P = diag(l)^-1 exp(MASK(S) - m)
                    const std::int64_t visible = mask.visible(i0 + r, j0, columns);
                    std::fill(p + visible, p + columns, 0.0f);
                    exp_row(p, m[r], p, visible);
                    if (visible != 0) scale_row(1.0f / l[r], p, visible);
                    // 14, 15, 18
                    if (mask.drops()) mask.drop(i0 + r, j0, columns, p, Z.row(0), P_dropped.row(r), dp);
                    // 19: D = rowsum(dO o O). 20: dS = P o (dP - D)
                    score_gradient_row(p, dp, dot_row(dO.row(r), O.row(r), d), dp, columns);
                }
                Block& dS = dP;
                // 16: dV_j += P_dropped^T dO_i
                gemm(1.0f, (mask.drops() ? P_dropped : P).matrix(), Transpose::yes, dO.matrix(), Transpose::no, 1.0f,
                     dV.matrix());
                // 21: dQ_i += tau dS_ij K_j
                gemm(tau, dS.matrix(), Transpose::no, K.matrix(), Transpose::no, 1.0f, dQ.matrix());
                // 22: dK_j += tau dS_ij^T Q_i
                gemm(tau, dS.matrix(), Transpose::yes, Q.matrix(), Transpose::no, 1.0f, dK.matrix());
            }
            memory.store(dQ, head.dQ, i0);  // 21
        }
        // 24
        memory.store(dK, head.dK, j0);
        memory.store(dV, head.dV, j0);
    }
}

template void flash1_backward(const Flash1Backward&, const HeadMasking&, Tile, float, Memory<Uncounted>);
template void flash1_backward(const Flash1Backward&, const HeadMasking&, Tile, float, Memory<Counted>);

void flash1_backward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                     const float* v, const float* out, const float* l, const float* m, const float* dout, float* dq,
                     float* dk, float* dv, int threads) {
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.kv_heads, threads, [&](std::int64_t begin, std::int64_t end) {
        Uncounted count;
        each_head_of_groups(shape, begin, end, [&](std::int64_t b, std::int64_t h, std::int64_t kv_head, bool first) {
            const Flash1Backward head{query_head(shape, q, b, h),
                                      key_head(shape, k, b, kv_head),
                                      key_head(shape, v, b, kv_head),
                                      query_head(shape, out, b, h),
                                      query_head(shape, dout, b, h),
                                      vector_head(shape, l, b, h),
                                      vector_head(shape, m, b, h),
                                      query_head(shape, dq, b, h),
                                      key_head(shape, dk, b, kv_head),
                                      key_head(shape, dv, b, kv_head),
                                      !first};
            flash1_backward(head, HeadMasking(shape, masking, tile, b, h), tile, shape.scale, Memory(count));
        });
    });
}

}  // namespace flashtile::baselines
