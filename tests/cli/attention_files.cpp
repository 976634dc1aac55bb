// attention_files.cpp: see attention_files.h.
#include "attention_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "oracle/tolerance.h"

namespace flashtile::tests {
namespace {

double as_stored(double value, const std::string& dtype) {
    const std::map<std::string, oracle::Precision> precisions = {
        {"fp32", oracle::Precision::fp32}, {"fp16", oracle::Precision::fp16}, {"bf16", oracle::Precision::bf16}};
    const auto precision = precisions.find(dtype);
    return precision == precisions.end() ? value : oracle::round_to(static_cast<float>(value), precision->second);
}

// To the nearest value of the type, in one step: by way of fp32 some would be rounded twice.
double round_to(double value, oracle::Precision precision) {
    const double near = oracle::round_to(static_cast<float>(value), precision);
    const double ulp = oracle::ulp_at(near, precision);
    for (const double neighbour : {near - ulp, near + ulp})
        if (std::abs(value - neighbour) < std::abs(value - near)) return neighbour;
    return near;
}

const char* name_of(oracle::Precision precision) {
    if (precision == oracle::Precision::fp16) return "fp16";
    return precision == oracle::Precision::bf16 ? "bf16" : "fp32";
}

std::vector<std::int64_t> shape_of(const std::array<std::int64_t, 4>& sizes, const std::string& order) {
    std::vector<std::int64_t> shape;
    for (const char letter : order) shape.push_back(sizes.at(std::string("bshd").find(letter)));
    return shape;
}

// Calls visit(position in (b, s, h, d) order, position in `order`) for every element.
template <class Visit>
void for_each_position(const std::array<std::int64_t, 4>& sizes, const std::string& order, Visit visit) {
    std::array<std::int64_t, 4> strides{};
    std::int64_t stride = 1;
    for (auto letter = order.rbegin(); letter != order.rend(); ++letter) {
        const std::size_t dimension = std::string("bshd").find(*letter);
        strides.at(dimension) = stride;
        stride *= sizes.at(dimension);
    }
    std::size_t plain = 0;
    for (std::int64_t b = 0; b < sizes[0]; ++b)
        for (std::int64_t s = 0; s < sizes[1]; ++s)
            for (std::int64_t h = 0; h < sizes[2]; ++h)
                for (std::int64_t d = 0; d < sizes[3]; ++d)
                    visit(plain++,
                          static_cast<std::size_t>(b * strides[0] + s * strides[1] + h * strides[2] + d * strides[3]));
}

}  // namespace

oracle::Problem random_problem(const Sizes& sizes, const std::string& stored) {
    std::mt19937 random(20240719);
    std::normal_distribution<double> normal;
    const auto values = [&](std::int64_t count) {
        std::vector<double> result(static_cast<std::size_t>(count));
        for (double& value : result) value = as_stored(normal(random), stored);
        return result;
    };
    oracle::Problem problem;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
        problem.sequences.push_back({b * sizes.seqlen_q, sizes.seqlen_q, b * sizes.seqlen_k, sizes.seqlen_k});
    problem.rows_q = sizes.batch * sizes.seqlen_q;
    problem.rows_k = sizes.batch * sizes.seqlen_k;
    problem.heads = sizes.heads;
    problem.kv_heads = sizes.kv_heads;
    problem.head_dim = sizes.head_dim;
    problem.head_dim_v = sizes.head_dim_v;
    problem.q = values(problem.rows_q * sizes.heads * sizes.head_dim);
    problem.k = values(problem.rows_k * sizes.kv_heads * sizes.head_dim);
    problem.v = values(problem.rows_k * sizes.kv_heads * sizes.head_dim_v);
    problem.scale = 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
    return problem;
}

Tensor arrange(const std::vector<double>& values, const std::array<std::int64_t, 4>& sizes, const std::string& order) {
    Tensor tensor{"fp32", shape_of(sizes, order), std::vector<double>(values.size())};
    for_each_position(sizes, order,
                      [&](std::size_t plain, std::size_t at) { tensor.values.at(at) = values.at(plain); });
    return tensor;
}

std::vector<double> arrange_back(const Tensor& tensor, const std::array<std::int64_t, 4>& sizes,
                                 const std::string& order) {
    std::vector<double> values(tensor.values.size());
    for_each_position(sizes, order,
                      [&](std::size_t plain, std::size_t at) { values.at(plain) = tensor.values.at(at); });
    return values;
}

Arranged arrange(const oracle::Problem& problem, const Sizes& sizes, const std::string& order,
                 const std::string& stored) {
    Arranged files{
        arrange(problem.q, {sizes.batch, sizes.seqlen_q, sizes.heads, sizes.head_dim}, order),
        arrange(problem.k, {sizes.batch, sizes.seqlen_k, sizes.kv_heads, sizes.head_dim}, order),
        arrange(problem.v, {sizes.batch, sizes.seqlen_k, sizes.kv_heads, sizes.head_dim_v}, order),
    };
    for (Tensor* tensor : {&files.q, &files.k, &files.v}) tensor->dtype = stored;
    return files;
}

Tensor cache(const oracle::Problem& problem, const std::vector<double>& values, std::vector<std::int64_t> shape,
             std::int64_t columns, const std::function<std::int64_t(std::int64_t b, std::int64_t j)>& place) {
    shape.insert(shape.end(), {problem.kv_heads, columns});
    const std::int64_t row = problem.kv_heads * columns;
    Tensor tensor{"fp32", shape,
                  std::vector<double>(static_cast<std::size_t>(shape[0] * shape[1] * row), std::nan(""))};
    for (std::size_t b = 0; b < problem.sequences.size(); ++b)
        for (std::int64_t j = 0; j < problem.sequences[b].k_length; ++j)
            std::copy_n(values.begin() + (problem.sequences[b].k_begin + j) * row, row,
                        tensor.values.begin() + place(static_cast<std::int64_t>(b), j) * row);
    return tensor;
}

void expect_right(oracle::Problem problem, const Sizes& sizes, const std::string& order, oracle::Precision computed,
                  const Tensor& out, const std::optional<Tensor>& lse) {
    for (auto* values : {&problem.q, &problem.k, &problem.v})
        for (double& value : *values) value = round_to(value, computed);
    const auto exact = oracle::exact_attention(problem, oracle::Pass::forward);
    const std::array<std::int64_t, 4> out_sizes = {sizes.batch, sizes.seqlen_q, sizes.heads, sizes.head_dim_v};
    EXPECT_EQ(out.dtype, name_of(computed));
    ASSERT_EQ(out.shape, shape_of(out_sizes, order));
    const auto standard = oracle::standard_attention(problem, computed, oracle::Pass::forward);
    const auto allowed = oracle::allowed_error(oracle::error_of(standard.out, exact.out), exact.out, computed);
    const auto error = oracle::error_of(arrange_back(out, out_sizes, order), exact.out);
    EXPECT_LE(error.max, allowed.max);
    EXPECT_LE(error.rms, allowed.rms);
    if (!lse) return;

    // Always heads before rows, whatever the layout of out.
    std::string lse_order = "bhs";
    std::erase_if(lse_order, [&](char letter) { return order.find(letter) == std::string::npos; });
    const std::array<std::int64_t, 4> lse_sizes = {sizes.batch, sizes.seqlen_q, sizes.heads, 1};
    EXPECT_EQ(lse->dtype, "fp32");
    ASSERT_EQ(lse->shape, shape_of(lse_sizes, lse_order));
    EXPECT_LE(oracle::error_of(arrange_back(*lse, lse_sizes, lse_order), exact.lse).max,
              oracle::allowed_lse_error(exact.largest_score, exact.largest_lse));
}

}  // namespace flashtile::tests
