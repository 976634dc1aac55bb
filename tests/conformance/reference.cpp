// reference.cpp: exact attention, and standard attention for the errors that it makes.
#include "conformance/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "conformance/problem_data.h"

namespace flashtile::conformance {
namespace {

// The error of standard attention on a few rows is a matter of luck. There it is the largest of several that differ in
// nothing but how the products of q.k are summed: in which order, and fused or not.
constexpr std::int64_t kFewRows = 512;
constexpr int kOrders = 8;

oracle::Precision precision_of(dtype type) {
    return type == fp32 ? oracle::Precision::fp32 : type == fp16 ? oracle::Precision::fp16 : oracle::Precision::bf16;
}

oracle::Result standard_in_another_order(oracle::Problem problem, int order, oracle::Formats formats,
                                         oracle::Pass pass) {
    const std::int64_t d = problem.head_dim, middle = order % kOrders / 2 * d * 2 / kOrders;
    const bool reversed = order % 2 != 0, fused = order >= kOrders;
    const auto each_row = [&](std::vector<double>& x, auto permute) {
        for (auto row = x.begin(); row != x.end(); row += d) permute(row);
    };
    const auto forth = [&](auto row) {
        std::rotate(row, row + middle, row + d);
        if (reversed) std::reverse(row, row + d);
    };
    const auto back = [&](auto row) {
        if (reversed) std::reverse(row, row + d);
        std::rotate(row, row + (d - middle), row + d);
    };
    each_row(problem.q, forth);
    each_row(problem.k, forth);
    oracle::Result result = oracle::standard_attention(problem, formats, pass, fused);
    each_row(result.dq, back);
    each_row(result.dk, back);
    return result;
}

// `rows` of all heads see a key.
std::vector<oracle::Result> standard_results(const oracle::Problem& problem, std::int64_t rows, oracle::Formats formats,
                                             oracle::Pass pass) {
    std::vector<oracle::Result> results{oracle::standard_attention(problem, formats, pass)};
    if (rows <= kFewRows)
        for (int order = 1; order < 2 * kOrders; ++order)
            results.push_back(standard_in_another_order(problem, order, formats, pass));
    return results;
}

}  // namespace

std::vector<double> only(const std::vector<double>& values, const std::vector<bool>& flags) {
    std::vector<double> result;
    for (std::size_t n = 0; n < values.size(); ++n)
        if (flags[n]) result.push_back(values[n]);
    return result;
}

Reference::Reference(const Case& problem, oracle::Pass pass) {
    const ProblemData data(problem);
    for (const double value : data.reference.v)
        if (std::abs(value) > oracle::largest_value(std::max<std::int64_t>(problem.longest_k(), 1)))
            faults.push_back("v is " + std::to_string(value) + ", for which no finite result is promised");

    const oracle::Precision precision = precision_of(problem.type),
                            stored_out = problem.out_in_fp32 ? oracle::Precision::fp32 : precision;
    const oracle::Formats formats{precision, problem.e4m3_queries() ? oracle::Precision::e4m3 : precision};
    const oracle::Result e = oracle::exact_attention(data.reference, pass);
    const auto seeing = std::ranges::count_if(e.lse, [](double of_row) { return std::isfinite(of_row); });
    const std::vector<oracle::Result> standard = standard_results(data.reference, seeing, formats, pass);
    const auto expect = [&](const char* name, auto tensor, std::vector<bool> owned, oracle::Precision stored,
                            double roundoff) {
        Expected expected{std::move(owned), {}, {}};
        expected.exact = only(std::invoke(tensor, e), expected.owned);
        const auto error_of = [&](const oracle::Result& result) {
            return oracle::error_of(only(std::invoke(tensor, result), expected.owned), expected.exact);
        };
        oracle::Error standard_error = error_of(standard.front());
        for (const oracle::Result& result : standard) {
            const oracle::Error error = error_of(result);
            standard_error = {std::max(standard_error.max, error.max), std::max(standard_error.rms, error.rms)};
        }
        if (!std::isfinite(standard_error.max))
            faults.push_back(std::string(name) + ": standard attention itself overflows, so the case gives no bound");
        expected.allowed = oracle::allowed_error(standard_error, expected.exact, stored, roundoff);
        return expected;
    };

    out = expect("out", &oracle::Result::out, data.owned_q(problem.heads * problem.head_dim_v), stored_out, 0.0);
    lse.owned = data.owned_q(problem.heads);
    lse.exact = only(e.lse, lse.owned);
    const double allowed = oracle::allowed_lse_error(e.largest_score, e.largest_lse);
    lse.allowed = {allowed, allowed};
    if (pass == oracle::Pass::forward) return;

    const auto of_ds = [&](double terms, double from_out) {
        return oracle::gradient_roundoff(terms, e.largest_lse, true, from_out, precision);
    };
    dq = expect("dq", &oracle::Result::dq, data.owned_q(problem.heads * problem.head_dim), precision,
                of_ds(e.largest_dq_terms, e.largest_dq_from_out));
    dk = expect("dk", &oracle::Result::dk, data.owned_k(problem.kv_heads * problem.head_dim), precision,
                of_ds(e.largest_dk_terms, e.largest_dk_from_out));
    dv = expect("dv", &oracle::Result::dv, data.owned_k(problem.kv_heads * problem.head_dim_v), precision,
                oracle::gradient_roundoff(e.largest_dv_terms, e.largest_lse, false, 0.0, precision));
    if (problem.sinks != Sinks::none)
        dsinks = expect("dsinks", &oracle::Result::dsinks, std::vector<bool>(e.dsinks.size(), true),
                        problem.sinks == Sinks::in_fp32 ? oracle::Precision::fp32 : precision,
                        of_ds(e.largest_dsinks_terms, e.largest_dsinks_from_out));
    for (std::size_t t = 0; t < e.dtensors.size(); ++t)
        dtensors.push_back(expect(
            "dtensors", [t](const oracle::Result& result) { return result.dtensors[t]; },
            std::vector<bool>(e.dtensors[t].size(), true), oracle::Precision::fp32,
            of_ds(e.largest_dtensors_terms[t], e.largest_dtensors_from_out[t])));
    if (problem.bias.present)
        dbias = expect("dbias", &oracle::Result::dbias, std::vector<bool>(e.dbias.size(), true),
                       problem.bias_in_fp32 ? oracle::Precision::fp32 : precision,
                       of_ds(e.largest_dbias_terms, e.largest_dbias_from_out));
}

}  // namespace flashtile::conformance
