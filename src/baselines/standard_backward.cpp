// standard_backward.cpp: Algorithm 3 of the FlashAttention paper (appendix B.4), for every head of every sequence.
// dK and dV of a key head are sums over the query heads that share it, so a thread takes a whole group.
#include <memory>

#include "baselines/one_head.h"
#include "baselines/parallel_for.h"
#include "baselines/row_softmax.h"
#include "baselines/standard_attention.h"

namespace flashtile::baselines {

void standard_backward(const Shape& shape, const float* q, const float* k, const float* v, const float* P_all,
                       const float* dout, float* dq, float* dk, float* dv, int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t N_squared = shape.seqlen_q * shape.seqlen_k;
    const ThreadSplit split = split_threads(threads, shape.batch * shape.kv_heads);
    openblas_set_num_threads(split.within_head);

    parallel_for(shape.batch * shape.kv_heads, split.over_heads, [&](std::int64_t begin, std::int64_t end) {
        const auto dP_memory = std::make_unique_for_overwrite<float[]>(N_squared);
        std::unique_ptr<float[]> own_P;
        if (!P_all) own_P = std::make_unique_for_overwrite<float[]>(N_squared);

        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / shape.kv_heads;
            const std::int64_t kv_head = index % shape.kv_heads;
            const auto K = key_head(shape, k, b, kv_head);
            const auto V = key_head(shape, v, b, kv_head);
            const auto dK = key_head(shape, dk, b, kv_head);
            const auto dV = key_head(shape, dv, b, kv_head);

            for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
                const float add_to_group = h == kv_head * group ? 0.0f : 1.0f;
                const auto Q = query_head(shape, q, b, h);
                const auto dO = query_head(shape, dout, b, h);
                const auto dQ = query_head(shape, dq, b, h);
                const auto dP = score_head(shape, dP_memory.get(), 0, 0);
                const auto& dS = dP;  // dS takes the place of dP
                if (!P_all)
                    scores_to_probabilities(shape, Q, K, score_head(shape, own_P.get(), 0, 0), split.within_head);
                const auto P =
                    P_all ? score_head(shape, P_all, b, h) : score_head<const float>(shape, own_P.get(), 0, 0);

                // 1: dV = P^T dO.
                gemm(1.0f, P, Transpose::yes, dO, Transpose::no, add_to_group, dV);
                // 2: dP = dO V^T, written to memory.
                gemm(1.0f, dO, Transpose::no, V, Transpose::yes, 0.0f, dP);
                // 3: dS_ij = P_ij (dP_ij - sum_l P_il dP_il), written to memory.
                parallel_for(P.rows, split.within_head, [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t i = first; i < last; ++i)
                        softmax_backward_row(P.row(i), dP.row(i), dS.row(i), P.columns);
                });
                // 4: dQ = dS K, with the scale that the paper's algorithm leaves out.
                gemm(shape.scale, dS, Transpose::no, K, Transpose::no, 0.0f, dQ);
                // 5: dK = dS^T Q.
                gemm(shape.scale, dS, Transpose::yes, Q, Transpose::no, add_to_group, dK);
            }
        }
    });
}

}  // namespace flashtile::baselines
