// flash2_backward.cpp: Algorithm 2 of the FlashAttention-2 paper, whose lines the comments number. Line 9 names O_i,
// which D_i has made needless, and line 15 loads dQ_i, which line 9 has loaded: here neither is loaded a second time. A
// thread takes all query heads that share a key head, since dK and dV are sums over them.
#include "baselines/flash2.h"

#include <vector>

namespace flashtile::baselines {

template <class Count>
void flash2_backward(const Flash2Backward& head, const HeadMasking& mask, Tile tile, float scale,
                     Memory<Count> memory) {
    const auto [Br, Bc] = tile;
    const std::int64_t d = head.Q.columns();
    Block K = memory.hold(Bc, d), V = memory.hold(Bc, d), dK = memory.hold(Bc, d), dV = memory.hold(Bc, d);
    Block Q = memory.hold(Br, d), dO = memory.hold(Br, d), dQ = memory.hold(Br, d);  // O_i is in Q's place for D
    Block L = memory.hold(Br, 1), D = memory.hold(Br, 1);
    Block P = memory.hold(Br, Bc), dP = memory.hold(Br, Bc);  // S is in P first, dS in dP at last
    Block P_dropped = memory.hold(mask.drops() ? Br : 0, Bc), Z = memory.hold(mask.drops() ? 1 : 0, Bc);

    // 3
    memory.fill(head.dQ, 0.0f);
    // 4: D = rowsum(dO o O)
    for (std::int64_t i0 = 0; i0 < head.Q.rows(); i0 += Br) {
        Block& O = Q;
        memory.load(head.O, i0, Br, O);
        memory.load(head.dO, i0, Br, dO);
        D.reshape(O.rows(), 1);
        if (memory.computes())
            for (std::int64_t r = 0; r < O.rows(); ++r) D[r] = dot_row(dO.row(r), O.row(r), d);
        memory.store(D, head.D, i0);
    }
    for (std::int64_t j0 = 0; j0 < head.K.rows(); j0 += Bc) {  // 5
        // 6
        memory.load(head.K, j0, Bc, K);
        memory.load(head.V, j0, Bc, V);
        // 7
        memory.load_or_clear(head.adds_to_keys, head.dK, j0, Bc, dK);
        memory.load_or_clear(head.adds_to_keys, head.dV, j0, Bc, dV);
        for (std::int64_t i0 = 0; i0 < head.Q.rows(); i0 += Br) {  // 8
            if (mask.skips(i0, j0)) continue;
            // 9
            memory.load(head.Q, i0, Br, Q);
            memory.load(head.dO, i0, Br, dO);
            memory.load(head.dQ, i0, Br, dQ);
            memory.load(head.L, i0, Br, L);
            memory.load(head.D, i0, Br, D);
            if (memory.computes()) {
                const std::int64_t rows = Q.rows(), columns = K.rows();
                P.reshape(rows, columns);
                dP.reshape(rows, columns);
                if (mask.drops()) P_dropped.reshape(rows, columns);
                // 10: S = Q_i K_j^T. 13: dP = dO_i V_j^T
                gemm(scale, Q.matrix(), Transpose::no, K.matrix(), Transpose::yes, 0.0f, P.matrix());
                gemm(1.0f, dO.matrix(), Transpose::no, V.matrix(), Transpose::yes, 0.0f, dP.matrix());
                for (std::int64_t r = 0; r < rows; ++r) {
                    float* p = P.row(r);
                    float* dp = dP.row(r);
                    // 11: P = exp(S - L_i)
                    const std::int64_t visible = mask.visible(i0 + r, j0, columns);
                    std::fill(p + visible, p + columns, 0.0f);
                    exp_row(p, L[r], p, visible);
                    if (mask.drops()) mask.drop(i0 + r, j0, columns, p, Z.row(0), P_dropped.row(r), dp);
                    // 14: dS = P o (dP - D_i)
                    score_gradient_row(p, dp, D[r], dp, columns);
                }
                Block& dS = dP;
                // 12: dV_j += P^T dO_i
                gemm(1.0f, (mask.drops() ? P_dropped : P).matrix(), Transpose::yes, dO.matrix(), Transpose::no, 1.0f,
                     dV.matrix());
                // 15: dQ_i += dS K_j. 16: dK_j += dS^T Q_i. Both with the scale that the paper's algorithm leaves out.
                gemm(scale, dS.matrix(), Transpose::no, K.matrix(), Transpose::no, 1.0f, dQ.matrix());
                gemm(scale, dS.matrix(), Transpose::yes, Q.matrix(), Transpose::no, 1.0f, dK.matrix());
            }
            memory.store(dQ, head.dQ, i0);  // 15
        }
        // 18
        memory.store(dK, head.dK, j0);
        memory.store(dV, head.dV, j0);
    }
}

template void flash2_backward(const Flash2Backward&, const HeadMasking&, Tile, float, Memory<Uncounted>);
template void flash2_backward(const Flash2Backward&, const HeadMasking&, Tile, float, Memory<Counted>);

void flash2_backward(const Shape& shape, const Masking& masking, Tile tile, const float* q, const float* k,
                     const float* v, const float* out, const float* L, const float* dout, float* dq, float* dk,
                     float* dv, int threads) {
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.kv_heads, threads, [&](std::int64_t begin, std::int64_t end) {
        Uncounted count;
        std::vector<float> D(static_cast<std::size_t>(shape.seqlen_q));
        each_head_of_groups(shape, begin, end, [&](std::int64_t b, std::int64_t h, std::int64_t kv_head, bool first) {
            const Flash2Backward head{query_head(shape, q, b, h),
                                      key_head(shape, k, b, kv_head),
                                      key_head(shape, v, b, kv_head),
                                      query_head(shape, out, b, h),
                                      query_head(shape, dout, b, h),
                                      vector_head(shape, L, b, h),
                                      query_head(shape, dq, b, h),
                                      key_head(shape, dk, b, kv_head),
                                      key_head(shape, dv, b, kv_head),
                                      vector_head(shape, D.data(), 0, 0),
                                      !first};
            flash2_backward(head, HeadMasking(shape, masking, tile, b, h), tile, shape.scale, Memory(count));
        });
    });
}

}  // namespace flashtile::baselines
