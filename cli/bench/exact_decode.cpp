// exact_decode.cpp: see exact_decode.h. Keys are gone through in pieces, so that no copy of the cache is made.
#include "bench/exact_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace flashtile::cli::bench {
namespace {

// Rows of one head of one sequence, `stride` elements apart, as floats.
std::vector<float> rows_of(const Numbers& numbers, std::int64_t first, std::int64_t rows, std::int64_t stride,
                           std::int64_t columns) {
    std::vector<float> result;
    result.reserve(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::vector<float> values = numbers.as_floats(first + row * stride, columns);
        result.insert(result.end(), values.begin(), values.end());
    }
    return result;
}

void one_head(const Point& p, const Inputs& inputs, std::int64_t b, std::int64_t head, float* out) {
    const std::int64_t d = p.head_dim, kv_head = head / (p.heads / p.kv_heads), stride = p.kv_heads * d;
    const std::int64_t first = (b * p.seqlen * p.kv_heads + kv_head) * d;
    const std::vector<float> k = rows_of(inputs.k, first, p.seqlen, stride, d),
                             v = rows_of(inputs.v, first, p.seqlen, stride, d);
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    for (std::int64_t i = 0; i < p.queries; ++i) {
        const std::int64_t row = ((b * p.queries + i) * p.heads + head) * d;
        const std::vector<float> q = inputs.q.as_floats(row, d);
        std::vector<double> s(static_cast<std::size_t>(p.seqlen));
        for (std::size_t j = 0; j < s.size(); ++j)
            for (std::size_t n = 0; n < q.size(); ++n)
                s[j] += scale * static_cast<double>(q[n]) * static_cast<double>(k[j * q.size() + n]);
        const double largest = *std::max_element(s.begin(), s.end());
        double sum = 0.0;
        std::vector<double> o(static_cast<std::size_t>(d));
        for (std::size_t j = 0; j < s.size(); ++j) {
            const double weight = std::exp(s[j] - largest);
            sum += weight;
            for (std::size_t n = 0; n < o.size(); ++n) o[n] += weight * static_cast<double>(v[j * o.size() + n]);
        }
        for (std::size_t n = 0; n < o.size(); ++n)
            out[row + static_cast<std::int64_t>(n)] = static_cast<float>(o[n] / sum);
    }
}

}  // namespace

Results exact_decode(const Point& p, const Inputs& inputs) {
    Results results;
    results.out.resize(static_cast<std::size_t>(p.q_size()));
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(p.threads));
    for (int thread = 0; thread < p.threads; ++thread)
        threads.emplace_back([&, thread] {
            for (std::int64_t n = thread; n < p.batch * p.heads; n += p.threads)
                one_head(p, inputs, n / p.heads, n % p.heads, results.out.data());
        });
    threads.clear();
    return results;
}

}  // namespace flashtile::cli::bench
