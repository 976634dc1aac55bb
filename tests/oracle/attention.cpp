// attention.cpp: Algorithm 0 of the FlashAttention paper and its backward (section B.4 there), with every option, for
// one head at a time. `Real` is the type that products and softmax are computed in; `round` is what storing S, P, dP,
// dS and the results does to them.
#include "oracle/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "oracle/philox.h"

namespace flashtile::oracle {
namespace {

constexpr double kHiddenScore = -1e30;  // a score at or below counts as minus infinity
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

template <class Real>
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<Real> values;

    Matrix(std::int64_t row_count, std::int64_t col_count)
        : rows(row_count), cols(col_count), values(at(row_count * col_count)) {}
    Real* row(std::int64_t i) { return values.data() + i * cols; }
    const Real* row(std::int64_t i) const { return values.data() + i * cols; }
};

template <class Real>
Matrix<Real> transpose(const Matrix<Real>& a) {
    Matrix<Real> result(a.cols, a.rows);
    for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t j = 0; j < a.cols; ++j) result.row(j)[i] = a.row(i)[j];
    return result;
}

// a b, each sum taken in order in `Real`; fused: of products that are not rounded before they are added.
template <class Real>
Matrix<Real> product(const Matrix<Real>& a, const Matrix<Real>& b, bool fused = false) {
    Matrix<Real> result(a.rows, b.cols);
    for (std::int64_t i = 0; i < a.rows; ++i) {
        Real* out = result.row(i);
        for (std::int64_t l = 0; l < a.cols; ++l) {
            const Real factor = a.row(i)[l];
            const Real* in = b.row(l);
            if (fused)  // a product of two floats is exact in double
                for (std::int64_t j = 0; j < b.cols; ++j)
                    out[j] = static_cast<Real>(static_cast<double>(factor) * static_cast<double>(in[j]) +
                                               static_cast<double>(out[j]));
            else
                for (std::int64_t j = 0; j < b.cols; ++j) out[j] += factor * in[j];
        }
    }
    return result;
}

struct Exact {
    using Real = double;
    double operator()(double value) const { return value; }
    double probability(double weight, double sum) const { return weight / sum; }
};

struct Stored {
    using Real = float;
    Formats formats;
    float operator()(float value) const { return round_to(value, formats.scores); }
    float probability(float weight, float sum) const {
        if (formats.probabilities == Precision::e4m3) return round_to(256.0f * weight, Precision::e4m3) / 256.0f / sum;
        return round_to(weight / sum, formats.probabilities);
    }
};

// Rows [begin, begin + length) of head h of a (rows, heads, width) array.
template <class Real>
Matrix<Real> gather(const std::vector<double>& values, std::int64_t begin, std::int64_t length, std::int64_t heads,
                    std::int64_t h, std::int64_t width) {
    Matrix<Real> result(length, width);
    for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t c = 0; c < width; ++c)
            result.row(i)[c] = static_cast<Real>(values[at(((begin + i) * heads + h) * width + c)]);
    return result;
}

template <class Real>
void add_to(std::vector<Real>& values, const Matrix<Real>& a, std::int64_t begin, std::int64_t heads, std::int64_t h) {
    for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t c = 0; c < a.cols; ++c) values[at(((begin + i) * heads + h) * a.cols + c)] += a.row(i)[c];
}

std::int64_t diagonal(const Problem& problem, const Sequence& sequence) {
    return problem.diagonal + sequence.diagonal + (problem.top_left ? 0 : sequence.k_length - sequence.q_length);
}

std::int64_t query_position(const Problem& problem, const Sequence& sequence, std::int64_t i) {
    if (problem.positions.empty()) return i + diagonal(problem, sequence);
    return static_cast<std::int64_t>(problem.positions[at(sequence.q_begin + i)]);
}

std::int64_t key_position(const Problem& problem, const Sequence& sequence, std::int64_t j) {
    const std::int64_t i = j - (sequence.k_length - sequence.q_length);
    if (problem.positions.empty() || i < 0) return j;
    return static_cast<std::int64_t>(problem.positions[at(sequence.q_begin + i)]);
}

Expression::Place place_of(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Sequence& sequence = problem.sequences[at(b)];
    const auto& [b0, h0, i0, j0] = problem.origin;
    return {.b = b0 + b,
            .h = h0 + h,
            .i = i0 + sequence.origin_i + i,
            .j = j0 + sequence.origin_j + j,
            .seqlen_q = sequence.q_length,
            .seqlen_k = sequence.k_length};
}

bool kept_by_dropout(const Problem& problem, std::uint32_t threshold, std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t j) {
    if (problem.explicit_keep.present())
        return problem.explicit_keep.values[problem.explicit_keep.index(b, h, i, j)] != 0.0;
    const auto& [b0, h0, i_of_all, j_of_all] = problem.origin;
    const std::int64_t i0 = i_of_all + problem.sequences[at(b)].origin_i,
                       j0 = j_of_all + problem.sequences[at(b)].origin_j;
    return threshold == 0 || dropout_draw(problem.seed, problem.offset, b0 + b, h0 + h, i0 + i, j0 + j) >= threshold;
}

template <class Round>
class Attention {
    using Real = typename Round::Real;

public:
    Attention(const Problem& problem, Round round, bool fused = false)
        : p_(problem),
          round_(round),
          fused_(fused),
          threshold_(dropout_threshold(problem.dropout)),
          keep_scale_(Real(65536) / static_cast<Real>(65536 - threshold_)),
          out_(at(problem.rows_q * problem.heads * problem.head_dim_v)),
          lse_(at(problem.rows_q * problem.heads), -kInfinity),
          dq_(at(problem.rows_q * problem.heads * problem.head_dim)),
          dk_(at(problem.rows_k * problem.kv_heads * problem.head_dim)),
          dv_(at(problem.rows_k * problem.kv_heads * problem.head_dim_v)),
          dbias_(problem.bias.values.size()),
          dsinks_(problem.sinks.size()),
          dsinks_terms_(problem.sinks.size()),
          dsinks_from_out_(problem.sinks.size()) {
        for (const std::size_t elements : problem.tensor_elements)
            for (auto* sums : {&dtensors_, &dtensors_terms_, &dtensors_from_out_}) sums->emplace_back(elements);
    }

    Result run(Pass pass) {
        for (std::size_t b = 0; b < p_.sequences.size(); ++b)
            for (std::int64_t h = 0; h < p_.heads; ++h) head(static_cast<std::int64_t>(b), h, pass);
        result_.out = stored(out_);
        result_.lse = lse_;
        for (const double lse : lse_)
            if (std::isfinite(lse)) result_.largest_lse = std::max(result_.largest_lse, std::abs(lse));
        if (pass == Pass::forward_and_backward) {
            result_.largest_dk_from_out = std::abs(p_.scale) * root_of_largest(dk_from_out_);
            result_.largest_dbias_terms = root_of_largest(dbias_terms_);
            result_.largest_dbias_from_out = root_of_largest(dbias_from_out_);
            for (const double terms : dsinks_terms_)
                result_.largest_dsinks_terms = std::max(result_.largest_dsinks_terms, terms);
            result_.largest_dsinks_from_out = root_of_largest(dsinks_from_out_);
            result_.dsinks.assign(dsinks_.begin(), dsinks_.end());
            for (std::size_t t = 0; t < dtensors_.size(); ++t) {
                result_.dtensors.emplace_back(dtensors_[t].begin(), dtensors_[t].end());
                result_.largest_dtensors_terms.push_back(root_of_largest(dtensors_terms_[t]));
                result_.largest_dtensors_from_out.push_back(root_of_largest(dtensors_from_out_[t]));
            }
            result_.dq = stored(dq_);
            result_.dk = stored(dk_);
            result_.dv = stored(dv_);
            result_.dbias = p_.bias_in_fp32 ? std::vector<double>(dbias_.begin(), dbias_.end()) : stored(dbias_);
        }
        return std::move(result_);
    }

private:
    std::vector<double> stored(const std::vector<Real>& values) const {
        std::vector<double> result(values.size());
        std::transform(values.begin(), values.end(), result.begin(), [&](Real value) { return round_(value); });
        return result;
    }

    // What a score is, its derivatives by scale * q.k and by the bias, and what the score function was given.
    struct Score {
        Real value;
        Real slope;
        Real bias_slope;
        Real given = 0;
    };

    Score score(Real dot, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        Score s{static_cast<Real>(p_.scale) * dot, Real(1), Real(1)};
        double largest = std::abs(static_cast<double>(s.value));
        if (p_.softcap != 0.0) {
            const Real cap = static_cast<Real>(p_.softcap);
            const Real t = std::tanh(s.value / cap);
            s = {cap * t, Real(1) - t * t, Real(1)};
        }
        largest = std::max(largest, std::abs(static_cast<double>(s.value)));
        if (!p_.slopes.empty()) {
            const Real slope = static_cast<Real>(p_.slopes[at(p_.slopes_per_batch ? b * p_.heads + h : h)]);
            const Sequence& sequence = p_.sequences[at(b)];
            const std::int64_t distance = query_position(p_, sequence, i) - key_position(p_, sequence, j);
            s.value += slope * -static_cast<Real>(std::abs(distance));
            largest = std::max(largest, std::abs(static_cast<double>(s.value)));
        }
        if (p_.bias.present()) s.value += static_cast<Real>(p_.bias.values[p_.bias.index(b, h, i, j)]);
        const bool seen = sees(p_, b, h, i, j) && !(s.value <= static_cast<Real>(kHiddenScore));
        if (p_.score_function && seen) {
            Expression::Place place = place_of(p_, b, h, i, j);
            place.s = static_cast<double>(s.value);
            const Expression::Dual built = p_.score_function->score(place, std::is_same_v<Real, float>);
            largest = std::max(largest, std::abs(place.s));
            s.given = s.value;
            s.value = static_cast<Real>(built.value);
            s.bias_slope = static_cast<Real>(built.derivative);
            s.slope *= s.bias_slope;
        }
        if (!seen || s.value <= static_cast<Real>(kHiddenScore))
            return {-std::numeric_limits<Real>::infinity(), Real(0), Real(0)};
        result_.largest_score = std::max({result_.largest_score, largest, std::abs(static_cast<double>(s.value))});
        s.value = round_(s.value);
        return s;
    }

    void head(std::int64_t b, std::int64_t h, Pass pass) {
        const Sequence& sequence = p_.sequences[at(b)];
        const std::int64_t nq = sequence.q_length;
        const std::int64_t nk = sequence.k_length;
        const std::int64_t h_kv = h / (p_.heads / p_.kv_heads);
        const auto q = gather<Real>(p_.q, sequence.q_begin, nq, p_.heads, h, p_.head_dim);
        const auto k = gather<Real>(p_.k, sequence.k_begin, nk, p_.kv_heads, h_kv, p_.head_dim);
        const auto v = gather<Real>(p_.v, sequence.k_begin, nk, p_.kv_heads, h_kv, p_.head_dim_v);

        Matrix<Real> s = product(q, transpose(k), fused_);
        Matrix<Real> slope(nq, nk);    // of the score by scale * q.k
        Matrix<Real> by_bias(nq, nk);  // and by the bias
        Matrix<Real> given(nq, nk);    // to the score function
        Matrix<Real> p(nq, nk);        // softmax(s)
        Matrix<Real> kept(nq, nk);     // 0, or what dropout multiplies by
        Matrix<Real> dropped(nq, nk);  // p after dropout
        for (std::int64_t i = 0; i < nq; ++i) {
            const Real sink = sink_of(h);
            Real m = sink;
            for (std::int64_t j = 0; j < nk; ++j) {
                const Score built = score(s.row(i)[j], b, h, i, j);
                s.row(i)[j] = built.value;
                slope.row(i)[j] = built.slope;
                by_bias.row(i)[j] = built.bias_slope;
                given.row(i)[j] = built.given;
                kept.row(i)[j] = kept_by_dropout(p_, threshold_, b, h, i, j) ? keep_scale_ : Real(0);
                m = std::max(m, built.value);
            }
            if (m == -std::numeric_limits<Real>::infinity()) continue;  // an empty row: out 0, lse -inf
            Real sum = std::exp(sink - m);
            for (std::int64_t j = 0; j < nk; ++j) sum += p.row(i)[j] = std::exp(s.row(i)[j] - m);
            lse_[at((sequence.q_begin + i) * p_.heads + h)] = static_cast<double>(m + std::log(sum));
            for (std::int64_t j = 0; j < nk; ++j) p.row(i)[j] = round_.probability(p.row(i)[j], sum);
        }
        drop(p, kept, dropped);
        const Matrix<Real> out = product(dropped, v);
        add_to(out_, out, sequence.q_begin, p_.heads, h);
        if (pass == Pass::forward) return;

        // P again, from lse as it was stored.
        for (std::int64_t i = 0; i < nq; ++i) {
            const Real lse = static_cast<Real>(lse_[at((sequence.q_begin + i) * p_.heads + h)]);
            if (lse == -std::numeric_limits<Real>::infinity()) continue;
            for (std::int64_t j = 0; j < nk; ++j) p.row(i)[j] = round_(std::exp(s.row(i)[j] - lse));
        }
        drop(p, kept, dropped);
        const auto dout = gather<Real>(p_.dout, sequence.q_begin, nq, p_.heads, h, p_.head_dim_v);
        add_to(dv_, product(transpose(dropped), dout), sequence.k_begin, p_.kv_heads, h_kv);

        Matrix<Real> dp = product(dout, transpose(v));
        Matrix<Real> ds(nq, nk);
        Matrix<Real> terms(nq, nk);  // the sum of what ds is a difference of
        for (std::int64_t i = 0; i < nq; ++i) {
            const double dlse = p_.dlse.empty() ? 0.0 : p_.dlse[at((sequence.q_begin + i) * p_.heads + h)];
            Real d = 0;
            for (std::int64_t c = 0; c < p_.head_dim_v; ++c) d += dout.row(i)[c] * round_(out.row(i)[c]);
            for (std::int64_t j = 0; j < nk; ++j) dp.row(i)[j] = round_(dp.row(i)[j]) * kept.row(i)[j];
            for (std::int64_t j = 0; j < nk; ++j) {
                const Real pij = p.row(i)[j];
                const Real difference = dp.row(i)[j] - d + static_cast<Real>(dlse);
                if (p_.bias.present())
                    dbias_[p_.bias.index(b, h, i, j)] += round_(pij * difference * by_bias.row(i)[j]);
                ds.row(i)[j] = round_(pij * difference * slope.row(i)[j]);
                terms.row(i)[j] = pij * (std::abs(dp.row(i)[j]) + std::abs(d) + std::abs(static_cast<Real>(dlse)));
            }
        }
        if (!p_.sinks.empty()) add_dsink(sequence, h, dout, out);
        if (p_.score_function && !p_.tensor_elements.empty()) add_dtensors(p, dp, terms, given, dout, out, b, h);
        const Real scale = static_cast<Real>(p_.scale);
        Matrix<Real> dq = product(ds, k);
        Matrix<Real> dk = product(transpose(ds), q);
        for (Real& value : dq.values) value *= scale;
        for (Real& value : dk.values) value *= scale;
        add_to(dq_, dq, sequence.q_begin, p_.heads, h);
        add_to(dk_, dk, sequence.k_begin, p_.kv_heads, h_kv);
        if constexpr (std::is_same_v<Real, double>) {
            measure_terms(terms, dropped, q, k, dout, b, h);
            measure_out(p, q, k, dout, out, b, h);
        }
    }

    Real sink_of(std::int64_t h) const {
        return p_.sinks.empty() ? -std::numeric_limits<Real>::infinity() : static_cast<Real>(p_.sinks[at(h)]);
    }

    // The sink's probability has no value: its gradient is the sum over rows of P_sink (dlse - D).
    void add_dsink(const Sequence& sequence, std::int64_t h, const Matrix<Real>& dout, const Matrix<Real>& out) {
        for (std::int64_t i = 0; i < sequence.q_length; ++i) {
            const auto row = at((sequence.q_begin + i) * p_.heads + h);
            const Real lse = static_cast<Real>(lse_[row]);
            const double dlse = p_.dlse.empty() ? 0.0 : p_.dlse[row];
            if (lse == -std::numeric_limits<Real>::infinity()) continue;
            const Real p = std::exp(sink_of(h) - lse);
            Real d = 0;
            double d_squared = 0.0;
            for (std::int64_t c = 0; c < p_.head_dim_v; ++c) {
                const Real term = dout.row(i)[c] * round_(out.row(i)[c]);
                d += term;
                d_squared += static_cast<double>(term) * static_cast<double>(term);
            }
            dsinks_[at(h)] += p * (static_cast<Real>(dlse) - d);
            dsinks_terms_[at(h)] += static_cast<double>(p) * (std::abs(static_cast<double>(d)) + std::abs(dlse));
            dsinks_from_out_[at(h)] += static_cast<Real>(static_cast<double>(p) * static_cast<double>(p) * d_squared);
        }
    }

    // dS at the score function, times the function's derivative by each element that it reads. As in add_row_squared,
    // errors of a row go together, and errors of rows are independent.
    void add_dtensors(const Matrix<Real>& p, const Matrix<Real>& dp, const Matrix<Real>& terms,
                      const Matrix<Real>& given, const Matrix<Real>& dout, const Matrix<Real>& out, std::int64_t b,
                      std::int64_t h) {
        const Sequence& sequence = p_.sequences[at(b)];
        for (std::int64_t i = 0; i < p.rows; ++i) {
            const double dlse = p_.dlse.empty() ? 0.0 : p_.dlse[at((sequence.q_begin + i) * p_.heads + h)];
            Real d = 0;
            double d_squared = 0.0;  // of D's error
            for (std::int64_t c = 0; c < p_.head_dim_v; ++c) {
                const Real term = dout.row(i)[c] * round_(out.row(i)[c]);
                d += term;
                d_squared += static_cast<double>(term) * static_cast<double>(term);
            }
            std::map<std::pair<std::size_t, std::size_t>, std::array<double, 2>> of_row;
            for (std::int64_t j = 0; j < p.cols; ++j) {
                if (p.row(i)[j] == Real(0)) continue;
                Expression::Place place = place_of(p_, b, h, i, j);
                place.s = static_cast<double>(given.row(i)[j]);
                for (const Expression::ByElement& by :
                     p_.score_function->by_elements(place, std::is_same_v<Real, float>)) {
                    const Real difference = dp.row(i)[j] - d + static_cast<Real>(dlse);
                    dtensors_[by.tensor][by.element] +=
                        round_(p.row(i)[j] * difference * static_cast<Real>(by.derivative));
                    auto& [terms_of_row, from_out] = of_row[{by.tensor, by.element}];
                    terms_of_row += static_cast<double>(terms.row(i)[j]) * std::abs(by.derivative);
                    from_out += static_cast<double>(p.row(i)[j]) * std::abs(by.derivative) * std::sqrt(d_squared);
                }
            }
            for (const auto& [element, sums] : of_row) {
                dtensors_terms_[element.first][element.second] += static_cast<Real>(sums[0] * sums[0]);
                dtensors_from_out_[element.first][element.second] += static_cast<Real>(sums[1] * sums[1]);
            }
        }
    }

    void drop(const Matrix<Real>& p, const Matrix<Real>& kept, Matrix<Real>& dropped) const {
        for (std::size_t n = 0; n < p.values.size(); ++n) dropped.values[n] = round_(p.values[n] * kept.values[n]);
    }

    void measure_terms(const Matrix<Real>& terms, const Matrix<Real>& dropped, const Matrix<Real>& q,
                       const Matrix<Real>& k, const Matrix<Real>& dout, std::int64_t b, std::int64_t h) {
        const auto absolute = [](Matrix<Real> a) {
            for (Real& value : a.values) value = std::abs(value);
            return a;
        };
        const auto raise = [](double& largest, const Matrix<Real>& a, double factor) {
            for (const Real value : a.values) largest = std::max(largest, factor * static_cast<double>(value));
        };
        raise(result_.largest_dq_terms, product(terms, absolute(k)), std::abs(p_.scale));
        raise(result_.largest_dk_terms, product(transpose(terms), absolute(q)), std::abs(p_.scale));
        raise(result_.largest_dv_terms, product(transpose(dropped), absolute(dout)), 1.0);
        dbias_terms_.resize(dbias_.size());
        for (std::int64_t i = 0; i < terms.rows; ++i)
            add_row_squared(dbias_terms_, terms.row(i), terms.cols, 1.0, b, h, i);
    }

    // Adds the squares of what row i adds to each place of the bias: errors of a row's keys go together, where they
    // share a place; errors of rows are independent.
    void add_row_squared(std::vector<Real>& squares, const Real* row, std::int64_t cols, double factor, std::int64_t b,
                         std::int64_t h, std::int64_t i) const {
        if (!p_.bias.present()) return;
        Real shared = 0;
        for (std::int64_t j = 0; j < cols; ++j) {
            const Real value = static_cast<Real>(factor) * row[j];
            if (p_.bias.shape[3] == 1)
                shared += value;
            else
                squares[p_.bias.index(b, h, i, j)] += value * value;
        }
        if (p_.bias.shape[3] == 1) squares[p_.bias.index(b, h, i, 0)] += shared * shared;
    }

    void measure_out(const Matrix<Real>& p, const Matrix<Real>& q, const Matrix<Real>& k, const Matrix<Real>& dout,
                     const Matrix<Real>& out, std::int64_t b, std::int64_t h) {
        const Sequence& sequence = p_.sequences[at(b)];
        const std::int64_t h_kv = h / (p_.heads / p_.kv_heads);
        dk_from_out_.resize(dk_.size());
        dbias_from_out_.resize(dbias_.size());
        const auto square = [](double x) { return x * x; };
        const Matrix<Real> pk = product(p, k);
        Matrix<Real> p_squared = transpose(p), q_squared = q;
        for (std::int64_t i = 0; i < p.rows; ++i) {
            double d_squared = 0.0;  // of D's error
            for (std::int64_t c = 0; c < out.cols; ++c) d_squared += square(dout.row(i)[c] * out.row(i)[c]);
            for (std::int64_t c = 0; c < k.cols; ++c) {
                result_.largest_dq_from_out =
                    std::max(result_.largest_dq_from_out, std::abs(p_.scale * pk.row(i)[c]) * std::sqrt(d_squared));
                q_squared.row(i)[c] = square(q.row(i)[c]) * d_squared;
            }
            for (std::int64_t j = 0; j < p.cols; ++j) p_squared.row(j)[i] = square(p.row(i)[j]);
            add_row_squared(dbias_from_out_, p.row(i), p.cols, std::sqrt(d_squared), b, h, i);
        }
        add_to(dk_from_out_, product(p_squared, q_squared), sequence.k_begin, p_.kv_heads, h_kv);
    }

    static double root_of_largest(const std::vector<Real>& squares) {
        return squares.empty() ? 0.0
                               : std::sqrt(static_cast<double>(*std::max_element(squares.begin(), squares.end())));
    }

    const Problem& p_;
    Round round_;
    bool fused_;
    std::uint32_t threshold_;
    Real keep_scale_;
    std::vector<Real> out_;
    std::vector<double> lse_;
    std::vector<Real> dq_, dk_, dv_, dbias_;
    std::vector<Real> dsinks_;
    std::vector<std::vector<Real>> dtensors_, dtensors_terms_, dtensors_from_out_;  // of the latter squares
    std::vector<double> dsinks_terms_;
    std::vector<Real> dsinks_from_out_;                             // squares
    std::vector<Real> dk_from_out_, dbias_from_out_, dbias_terms_;  // squares
    Result result_;
};

}  // namespace

std::size_t Broadcast::index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::array<std::int64_t, 4> place{b, h, i, j};
    std::int64_t index = 0;
    for (std::size_t n = 0; n < 4; ++n) index = index * shape[n] + (shape[n] == 1 ? 0 : place[n]);
    return at(index);
}

bool BlockList::names(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t block) const {
    if (counts.empty()) return false;
    const std::int64_t line = ((shape[0] > 1 ? b : 0) * shape[1] + (shape[1] > 1 ? h : 0)) * rows + row;
    const auto first = indices.begin() + line * room;
    const auto end = first + static_cast<std::int64_t>(counts[at(line)]);
    return std::find(first, end, static_cast<double>(block)) != end;
}

bool sees(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Sequence& sequence = problem.sequences[at(b)];
    const std::int64_t center = query_position(problem, sequence, i), place = key_position(problem, sequence, j);
    if (j < sequence.first_k) return false;
    if (problem.chunk != 0) {
        const std::int64_t j0 = problem.origin[3] + sequence.origin_j, in_whole = center + j0;
        const std::int64_t chunk_of_query = in_whole >= 0 ? in_whole / problem.chunk : -1;  // no key is below 0
        if ((place + j0) / problem.chunk != chunk_of_query) return false;
    }
    const std::int64_t old_keys = sequence.k_length - sequence.q_length;
    if (problem.tree.present() && j >= old_keys &&
        problem.tree.values[problem.tree.index(b, h, i, j - old_keys)] == 0.0)
        return false;
    if (problem.causal && place > center) return false;
    if (problem.window_left >= 0 && place < center - problem.window_left) return false;
    if (problem.window_right >= 0 && place > center + problem.window_right) return false;
    bool full = false;
    if (problem.block_q != 0) {
        const std::int64_t row = i / problem.block_q, block = j / problem.block_k;
        full = problem.full_blocks.names(b, h, row, block);
        if (!full && !problem.partial_blocks.names(b, h, row, block)) return false;
    }
    if (problem.mask_function && !full && !problem.mask_function->mask(place_of(problem, b, h, i, j))) return false;
    return !problem.mask.present() || problem.mask.values[problem.mask.index(b, h, i, j)] != 0.0;
}

Result exact_attention(const Problem& problem, Pass pass) {
    return Attention<Exact>(problem, Exact{}).run(pass);
}

Result standard_attention(const Problem& problem, Formats formats, Pass pass, bool fused) {
    return Attention<Stored>(problem, Stored{formats}, fused).run(pass);
}

}  // namespace flashtile::oracle
