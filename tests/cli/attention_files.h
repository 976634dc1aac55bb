// attention_files.h: a random attention problem as the oracle takes it, its tensors laid out as files hold them, and
// the judgement of what `flashtile attend` made of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "oracle/attention.h"
#include "oracle/precision.h"
#include "tensor_file.h"

namespace flashtile::tests {

// Uneven, so that no two can be taken for each other.
struct Sizes {
    std::int64_t batch = 2;
    std::int64_t heads = 6;
    std::int64_t kv_heads = 2;
    std::int64_t seqlen_q = 37;
    std::int64_t seqlen_k = 53;
    std::int64_t head_dim = 24;
    std::int64_t head_dim_v = 40;
};

// Normal values as a file of type `stored` holds them.
oracle::Problem random_problem(const Sizes& sizes, const std::string& stored = "fp32");

// `values` in order (b, s, h, d), of sizes {b, s, h, d}, as a tensor whose dimensions are the letters of `order`; and
// back. A letter that is left out has size 1.
Tensor arrange(const std::vector<double>& values, const std::array<std::int64_t, 4>& sizes, const std::string& order);
std::vector<double> arrange_back(const Tensor& tensor, const std::array<std::int64_t, 4>& sizes,
                                 const std::string& order);

// The problem's tensors in `order`.
struct Arranged {
    Tensor q, k, v;
};
Arranged arrange(const oracle::Problem& problem, const Sizes& sizes, const std::string& order = "bshd",
                 const std::string& stored = "fp32");

// A cache of `shape`, (rows, s) or (pages, page size), that holds the used rows of `values`, k or v of the problem's
// sequences: key j of sequence b in its row place(b, j). NaN elsewhere.
Tensor cache(const oracle::Problem& problem, const std::vector<double>& values, std::vector<std::int64_t> shape,
             std::int64_t columns, const std::function<std::int64_t(std::int64_t b, std::int64_t j)>& place);

// Fails the test unless `out`, of the dimensions `order`, is the attention of the problem's values rounded to
// `computed`, in that type; and so is `lse` if given.
void expect_right(oracle::Problem problem, const Sizes& sizes, const std::string& order, oracle::Precision computed,
                  const Tensor& out, const std::optional<Tensor>& lse = std::nullopt);

}  // namespace flashtile::tests
