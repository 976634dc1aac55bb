// rabe_staats.cpp: see rabe_staats.h. Names are those of the program in the paper's Figure 1, and P, dO, dS .. where it
// has none.
#include "baselines/rabe_staats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "baselines/head.h"
#include "baselines/parallel_for.h"
#include "baselines/row_softmax.h"

namespace flashtile::baselines {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::int64_t parts(std::int64_t rows, std::int64_t chunk) {
    return (rows + chunk - 1) / chunk;
}

// The n-th chunk of a matrix.
template <class T>
Matrix<T> chunk_of(const Matrix<T>& matrix, std::int64_t chunk, std::int64_t n) {
    return {matrix.row(n * chunk), std::min(chunk, matrix.rows - n * chunk), matrix.columns, matrix.stride};
}

// One chunk of queries of one head at a time.
class QueryChunk {
public:
    QueryChunk(const Shape& shape, Chunks chunks)
        : shape_(shape),
          chunks_{std::min(chunks.queries, shape.seqlen_q), std::min(chunks.keys, shape.seqlen_k)},
          summaries_(static_cast<std::size_t>(parts(shape.seqlen_k, chunks_.keys))),
          P_(size(chunks_.queries, chunks_.keys)),
          global_max_(size(chunks_.queries, 1)),
          all_weights_(global_max_.size()) {
        for (Summary& summary : summaries_) {
            summary.values.resize(size(chunks_.queries, shape.head_dim));
            summary.weights.resize(all_weights_.size());
            summary.max.resize(all_weights_.size());
        }
    }

    void forward(const Matrix<const float>& Q, const Matrix<const float>& K, const Matrix<const float>& V,
                 const Matrix<float>& O, std::int64_t n) {
        const auto Q_chunk = chunk_of(Q, chunks_.queries, n);
        for (std::size_t c = 0; c < summaries_.size(); ++c) summarize(Q_chunk, n, K, V, c);
        combine(chunk_of(O, chunks_.queries, n));
    }

    // Adds to dK and dV.
    void backward(const Matrix<const float>& Q, const Matrix<const float>& K, const Matrix<const float>& V,
                  const Matrix<const float>& dO, const Matrix<float>& dQ, const Matrix<float>& dK,
                  const Matrix<float>& dV, std::int64_t n) {
        const auto Q_chunk = chunk_of(Q, chunks_.queries, n);
        const auto dO_chunk = chunk_of(dO, chunks_.queries, n);
        const auto dQ_chunk = chunk_of(dQ, chunks_.queries, n);
        const std::int64_t rows = Q_chunk.rows, d = Q_chunk.columns;
        O_.resize(size(chunks_.queries, d));
        d_values_.resize(O_.size());
        dP_.resize(P_.size());
        const Matrix<float> O_chunk{O_.data(), rows, d, d};
        for (std::size_t c = 0; c < summaries_.size(); ++c) summarize(Q_chunk, n, K, V, c);
        combine(O_chunk);

        for (std::size_t c = 0; c < summaries_.size(); ++c) {
            const auto K_chunk = chunk_of(K, chunks_.keys, static_cast<std::int64_t>(c));
            const auto V_chunk = chunk_of(V, chunks_.keys, static_cast<std::int64_t>(c));
            const Matrix<float> d_values{d_values_.data(), rows, d, d};
            const auto P = weights(Q_chunk, n, K_chunk, c);
            const Matrix<float> dS{dP_.data(), P.rows, P.columns, P.columns};
            // out = sum_c e^(max_c - max) values_c / all_weights, whose gradient in values_c is that of O times this.
            for (std::int64_t r = 0; r < rows; ++r) {
                std::copy_n(dO_chunk.row(r), d, d_values.row(r));
                scale_row(share(c, r), d_values.row(r), d);
            }
            // values_c = P V_c, and weights_c is P's sum, whose gradient is -O times that of values_c.
            gemm(1.0f, P, Transpose::yes, d_values, Transpose::no, 1.0f,
                 chunk_of(dV, chunks_.keys, static_cast<std::int64_t>(c)));
            gemm(1.0f, d_values, Transpose::no, V_chunk, Transpose::yes, 0.0f, dS);
            for (std::int64_t r = 0; r < rows; ++r)
                score_gradient_row(P.row(r), dS.row(r), dot_row(d_values.row(r), O_chunk.row(r), d), dS.row(r),
                                   P.columns);
            gemm(shape_.scale, dS, Transpose::no, K_chunk, Transpose::no, c == 0 ? 0.0f : 1.0f, dQ_chunk);
            gemm(shape_.scale, dS, Transpose::yes, Q_chunk, Transpose::no, 1.0f,
                 chunk_of(dK, chunks_.keys, static_cast<std::int64_t>(c)));
        }
    }

    std::int64_t count() const { return parts(shape_.seqlen_q, chunks_.queries); }

private:
    struct Summary {
        std::vector<float> values;   // exp_weights V of the chunk
        std::vector<float> weights;  // rows' sums of exp_weights
        std::vector<float> max;      // rows' largest scores; -inf where a row sees no key of the chunk
    };

    static std::size_t size(std::int64_t rows, std::int64_t columns) {
        return static_cast<std::size_t>(rows * columns);
    }

    // exp_weights = exp(Q K^T - max_score) of one chunk of keys, with the sums and the largest scores.
    Matrix<float> weights(const Matrix<const float>& Q, std::int64_t n, const Matrix<const float>& K, std::size_t c) {
        const Matrix<float> P{P_.data(), Q.rows, K.rows, K.rows};
        gemm(shape_.scale, Q, Transpose::no, K, Transpose::yes, 0.0f, P);
        const std::int64_t j0 = static_cast<std::int64_t>(c) * chunks_.keys;
        for (std::int64_t r = 0; r < P.rows; ++r) {
            const std::int64_t i = n * chunks_.queries + r;
            const std::int64_t visible =
                shape_.causal
                    ? std::clamp<std::int64_t>(causal_keys(i, shape_.seqlen_q, shape_.seqlen_k) - j0, 0, P.columns)
                    : P.columns;
            const auto row = static_cast<std::size_t>(r);
            summaries_[c].max[row] = row_max(P.row(r), visible);
            summaries_[c].weights[row] = exp_row(P.row(r), summaries_[c].max[row], P.row(r), visible);
            std::fill(P.row(r) + visible, P.row(r) + P.columns, 0.0f);
        }
        return P;
    }

    void summarize(const Matrix<const float>& Q, std::int64_t n, const Matrix<const float>& K,
                   const Matrix<const float>& V, std::size_t c) {
        const auto P = weights(Q, n, chunk_of(K, chunks_.keys, static_cast<std::int64_t>(c)), c);
        const Matrix<float> values{summaries_[c].values.data(), Q.rows, V.columns, V.columns};
        gemm(1.0f, P, Transpose::no, chunk_of(V, chunks_.keys, static_cast<std::int64_t>(c)), Transpose::no, 0.0f,
             values);
    }

    // e^(max_c - global_max) of row r.
    float max_diff(std::size_t c, std::int64_t r) const {
        const auto row = static_cast<std::size_t>(r);
        if (global_max_[row] == -infinity) return 0.0f;  // the query sees no key
        return std::exp(summaries_[c].max[row] - global_max_[row]);
    }

    // What values_c counts for in row r of the output.
    float share(std::size_t c, std::int64_t r) const {
        const float weights = all_weights_[static_cast<std::size_t>(r)];
        return weights == 0.0f ? 0.0f : max_diff(c, r) / weights;
    }

    // O = sum_c e^(max_c - global_max) values_c / all_weights.
    void combine(const Matrix<float>& O) {
        for (std::int64_t r = 0; r < O.rows; ++r) {
            const auto row = static_cast<std::size_t>(r);
            global_max_[row] = -infinity;
            for (const Summary& summary : summaries_) global_max_[row] = std::max(global_max_[row], summary.max[row]);
            all_weights_[row] = 0.0f;
            for (std::size_t c = 0; c < summaries_.size(); ++c)
                all_weights_[row] += max_diff(c, r) * summaries_[c].weights[row];
            std::fill_n(O.row(r), O.columns, 0.0f);
            for (std::size_t c = 0; c < summaries_.size(); ++c)
                add_row(share(c, r), summaries_[c].values.data() + r * O.columns, O.row(r), O.columns);
        }
    }

    const Shape& shape_;
    Chunks chunks_;
    std::vector<Summary> summaries_;
    std::vector<float> P_, global_max_, all_weights_;
    std::vector<float> O_, d_values_, dP_;  // of backward; dS takes the place of dP
};

void fill(const Matrix<float>& matrix, float value) {
    for (std::int64_t i = 0; i < matrix.rows; ++i) std::fill_n(matrix.row(i), matrix.columns, value);
}

}  // namespace

void rabe_staats_forward(const Shape& shape, Chunks chunks, const float* q, const float* k, const float* v, float* out,
                         int threads) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t count = parts(shape.seqlen_q, std::min(chunks.queries, shape.seqlen_q));
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.heads * count, threads, [&](std::int64_t begin, std::int64_t end) {
        QueryChunk chunk(shape, chunks);
        for (std::int64_t index = begin; index < end; ++index) {
            const std::int64_t b = index / count / shape.heads;
            const std::int64_t h = index / count % shape.heads;
            chunk.forward(query_head(shape, q, b, h), key_head(shape, k, b, h / group),
                          key_head(shape, v, b, h / group), query_head(shape, out, b, h), index % count);
        }
    });
}

void rabe_staats_backward(const Shape& shape, Chunks chunks, const float* q, const float* k, const float* v,
                          const float* dout, float* dq, float* dk, float* dv, int threads) {
    openblas_set_num_threads(1);
    parallel_for(shape.batch * shape.kv_heads, threads, [&](std::int64_t begin, std::int64_t end) {
        QueryChunk chunk(shape, chunks);
        each_head_of_groups(shape, begin, end, [&](std::int64_t b, std::int64_t h, std::int64_t kv_head, bool first) {
            const auto dK = key_head(shape, dk, b, kv_head);
            const auto dV = key_head(shape, dv, b, kv_head);
            if (first) {
                fill(dK, 0.0f);
                fill(dV, 0.0f);
            }
            for (std::int64_t n = 0; n < chunk.count(); ++n)
                chunk.backward(query_head(shape, q, b, h), key_head(shape, k, b, kv_head),
                               key_head(shape, v, b, kv_head), query_head(shape, dout, b, h),
                               query_head(shape, dq, b, h), dK, dV, n);
        });
    });
}

}  // namespace flashtile::baselines
