// standard_forward.cpp: Algorithm 0 of the FlashAttention paper, for every head of every sequence.
#include <memory>

#include "baselines/one_head.h"
#include "baselines/parallel_for.h"
#include "baselines/row_softmax.h"
#include "baselines/standard_attention.h"

namespace flashtile::baselines {

void scores_to_probabilities(const Shape& shape, Matrix<const float> Q, Matrix<const float> K, Matrix<float> P,
                             int threads) {
    // 1: S = Q K^T, written to memory.
    const Matrix<float>& S = P;
    gemm(shape.scale, Q, Transpose::no, K, Transpose::yes, 0.0f, S);

    // 2: read S, compute P = softmax(S), written to memory.
    parallel_for(S.rows, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t visible = shape.causal ? causal_keys(i, S.rows, S.columns) : S.columns;
            softmax_row(S.row(i), P.row(i), visible, P.columns);
        }
    });
}

void standard_forward(const Shape& shape, const float* q, const float* k, const float* v, float* out, float* P_all,
                      int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const ThreadSplit split = split_threads(threads, shape.batch * shape.heads);
    openblas_set_num_threads(split.within_head);

    parallel_for(shape.batch * shape.heads, split.over_heads, [&](std::int64_t begin, std::int64_t end) {
        std::unique_ptr<float[]> own_P;
        if (!P_all) own_P = std::make_unique_for_overwrite<float[]>(shape.seqlen_q * shape.seqlen_k);

        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / shape.heads;
            const std::int64_t h = index % shape.heads;
            const auto Q = query_head(shape, q, b, h);
            const auto K = key_head(shape, k, b, h / group);
            const auto V = key_head(shape, v, b, h / group);
            const auto O = query_head(shape, out, b, h);
            const auto P = P_all ? score_head(shape, P_all, b, h) : score_head(shape, own_P.get(), 0, 0);

            scores_to_probabilities(shape, Q, K, P, split.within_head);
            // 3: O = P V.
            gemm(1.0f, P, Transpose::no, V, Transpose::no, 0.0f, O);
        }
    });
}

}  // namespace flashtile::baselines
