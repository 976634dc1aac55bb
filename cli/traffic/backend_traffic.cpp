// backend_traffic.cpp: see backend_traffic.h.
#include "traffic/backend_traffic.h"

#include <algorithm>
#include <cstddef>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attention_names.h"
#include "baselines/inner_rows.h"

namespace flashtile::cli::traffic {

using baselines::AnalyticTraffic;
using baselines::inner_rows;

BackendPlan backend_plan(Pass pass, const std::string& dtype, std::int64_t heads, std::int64_t kv_heads, std::int64_t N,
                         std::int64_t d, bool causal) {
    alignas(64) static std::byte memory[64];  // an address: a plan reads no tensor
    const auto rows = [&](std::int64_t of_heads) { return view(memory, parse_dtype(dtype), {1, N, of_heads, d}); };
    const auto report = [&](isa wanted) {
        const options o = {.causal = causal, .isa = wanted};
        auto plan = nlohmann::json::parse(plan_report(o, rows(heads), rows(kv_heads), rows(kv_heads)))
                        .at(pass == Pass::forward ? "forward" : "backward");
        if (plan.contains("why_not")) throw std::runtime_error(plan.at("why_not").get<std::string>());
        return plan;
    };
    nlohmann::json plan = report(isa::automatic);
    if (plan.at("candidate") == "amx") plan = report(isa::avx512);
    const char* kernel = pass == Pass::forward ? "forward" : "backward_keys";
    const auto& steps = plan.at("kernels");
    const auto& step = *std::ranges::find_if(steps, [&](const auto& s) { return s.at("kernel") == kernel; });
    return {plan.at("candidate"), {step.at("Br"), step.at("Bc")}, step.at("task_rows")};
}

AnalyticTraffic analytic_moves(const counting::CountedPass& pass, const baselines::Tile& tile) {
    const auto N = static_cast<double>(pass.N), d = static_cast<double>(pass.d);
    const auto heads = static_cast<double>(pass.group), task_rows = static_cast<double>(pass.task_rows);
    if (pass.pass == Pass::forward) {
        const AnalyticTraffic keys = inner_rows(N, {task_rows, 0.0, 0.0, true}, pass.causal);
        return {heads * (2.0 * N * d + N + 2.0 * d * keys.elements), heads * 2.0 * d * keys.below,
                heads * 2.0 * d * keys.above};
    }
    // Blocks of queries start at multiples of Br, which a task of fewer keys may begin behind.
    const double reach = std::max(0.0, static_cast<double>(tile.Br) - task_rows);
    const AnalyticTraffic queries = inner_rows(N, {task_rows, reach, 0.0, false}, pass.causal);
    const AnalyticTraffic sums = inner_rows(N, {static_cast<double>(tile.Bc), 0.0, 0.0, false}, pass.causal);
    const double once = heads * (7.0 * N * d + 3.0 * N) + 2.0 * N * d;
    const auto each = [&](double of_queries, double of_sums) {
        return heads * ((2.0 * d + 2.0) * of_queries + 2.0 * d * of_sums);
    };
    return {once + each(queries.elements, sums.elements), each(queries.below, sums.below),
            each(queries.above, sums.above)};
}

}  // namespace flashtile::cli::traffic
