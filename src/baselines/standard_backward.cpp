// standard_backward.cpp: Algorithm 3 of the FlashAttention paper (appendix B.4), for every head of every sequence.
// dK and dV of a key head are sums over the query heads that share it, so a thread takes a whole group.
#include <memory>

#include "baselines/one_head.h"
#include "baselines/row_softmax.h"

namespace flashtile::baselines {

template <class Count>
void standard_backward(const Shape& shape, const StandardBackward& head, int threads, Memory<Count> memory) {
    const float add_to_group = head.adds_to_keys ? 1.0f : 0.0f;
    // 1: dV = P^T dO.
    memory.multiply(1.0f, head.P, Transpose::yes, head.dO, Transpose::no, add_to_group, head.dV);
    // 2: dP = dO V^T, written to memory.
    memory.multiply(1.0f, head.dO, Transpose::no, head.V, Transpose::yes, 0.0f, head.dP);
    // 3: dS_ij = P_ij (dP_ij - sum_l P_il dP_il), written to memory.
    const Slow<float>& dS = head.dP;  // dS takes the place of dP
    memory.change_rows_by(head.P, dS, threads,
                          [&](const float* p, float* row) { softmax_backward_row(p, row, row, dS.columns()); });
    // 4: dQ = dS K, with the scale that the paper's algorithm leaves out.
    memory.multiply(shape.scale, dS, Transpose::no, head.K, Transpose::no, 0.0f, head.dQ);
    // 5: dK = dS^T Q.
    memory.multiply(shape.scale, dS, Transpose::yes, head.Q, Transpose::no, add_to_group, head.dK);
}

template void standard_backward(const Shape&, const StandardBackward&, int, Memory<Uncounted>);
template void standard_backward(const Shape&, const StandardBackward&, int, Memory<Counted>);

void standard_backward(const Shape& shape, const float* q, const float* k, const float* v, const float* P_all,
                       const float* dout, float* dq, float* dk, float* dv, int threads) {
    const std::int64_t N_squared = shape.seqlen_q * shape.seqlen_k;
    const ThreadSplit split = split_threads(threads, shape.batch * shape.kv_heads);
    openblas_set_num_threads(split.within_head);

    parallel_for(shape.batch * shape.kv_heads, split.over_heads, [&](std::int64_t begin, std::int64_t end) {
        const auto dP_memory = std::make_unique_for_overwrite<float[]>(N_squared);
        std::unique_ptr<float[]> own_P;
        if (!P_all) own_P = std::make_unique_for_overwrite<float[]>(N_squared);

        Uncounted count;
        each_head_of_groups(shape, begin, end, [&](std::int64_t b, std::int64_t h, std::int64_t kv_head, bool first) {
            const auto K = key_head(shape, k, b, kv_head);
            const auto Q = query_head(shape, q, b, h);
            if (!P_all)
                scores_to_probabilities<Uncounted>(shape, Q, K, score_head(shape, own_P.get(), 0, 0), split.within_head,
                                                   Memory(count));
            const StandardBackward head{
                Q,
                K,
                key_head(shape, v, b, kv_head),
                P_all ? score_head(shape, P_all, b, h) : score_head<const float>(shape, own_P.get(), 0, 0),
                query_head(shape, dout, b, h),
                query_head(shape, dq, b, h),
                key_head(shape, dk, b, kv_head),
                key_head(shape, dv, b, kv_head),
                score_head(shape, dP_memory.get(), 0, 0),
                !first};
            standard_backward(shape, head, split.within_head, Memory(count));
        });
    });
}

}  // namespace flashtile::baselines
