// standard_forward.cpp: Algorithm 0 of the FlashAttention paper, for every head of every sequence.
#include <memory>

#include "baselines/one_head.h"
#include "baselines/row_softmax.h"

namespace flashtile::baselines {

template <class Count>
void scores_to_probabilities(const Shape& shape, const Slow<const float>& Q, const Slow<const float>& K,
                             const Slow<float>& P, int threads, Memory<Count> memory) {
    // 1: S = Q K^T, written to memory.
    const Slow<float>& S = P;
    memory.multiply(shape.scale, Q, Transpose::no, K, Transpose::yes, 0.0f, S);

    // 2: read S, compute P = softmax(S), written to memory.
    memory.change_rows(S, threads, [&](float* row, std::int64_t i) {
        const std::int64_t visible = shape.causal ? causal_keys(i, S.rows(), S.columns()) : S.columns();
        softmax_row(row, row, visible, S.columns());
    });
}

template <class Count>
void standard_forward(const Shape& shape, const StandardForward& head, int threads, Memory<Count> memory) {
    scores_to_probabilities(shape, head.Q, head.K, head.P, threads, memory);
    // 3: O = P V.
    memory.multiply(1.0f, head.P, Transpose::no, head.V, Transpose::no, 0.0f, head.O);
}

template void scores_to_probabilities(const Shape&, const Slow<const float>&, const Slow<const float>&,
                                      const Slow<float>&, int, Memory<Uncounted>);
template void standard_forward(const Shape&, const StandardForward&, int, Memory<Uncounted>);
template void standard_forward(const Shape&, const StandardForward&, int, Memory<Counted>);

void standard_forward(const Shape& shape, const float* q, const float* k, const float* v, float* out, float* P_all,
                      int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const ThreadSplit split = split_threads(threads, shape.batch * shape.heads);
    openblas_set_num_threads(split.within_head);

    parallel_for(shape.batch * shape.heads, split.over_heads, [&](std::int64_t begin, std::int64_t end) {
        std::unique_ptr<float[]> own_P;
        if (!P_all) own_P = std::make_unique_for_overwrite<float[]>(shape.seqlen_q * shape.seqlen_k);

        Uncounted count;
        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / shape.heads;
            const std::int64_t h = index % shape.heads;
            const StandardForward head{query_head(shape, q, b, h), key_head(shape, k, b, h / group),
                                       key_head(shape, v, b, h / group), query_head(shape, out, b, h),
                                       P_all ? score_head(shape, P_all, b, h) : score_head(shape, own_P.get(), 0, 0)};
            standard_forward(shape, head, split.within_head, Memory(count));
        }
    });
}

}  // namespace flashtile::baselines
