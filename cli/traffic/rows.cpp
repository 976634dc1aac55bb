// rows.cpp: see rows.h.
#include "traffic/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace flashtile::cli::traffic {
namespace {

using baselines::Algorithm;
using baselines::Direction;
using baselines::TrafficProblem;

void check(const Options& options) {
    if (options.causal && options.density < 1.0)
        throw std::invalid_argument(fmt::format("--density is {}, allowed with --causal is 1", options.density));
    const auto most_dim = static_cast<std::uint64_t>(std::ranges::max(options.head_dims));
    const std::uint64_t bytes = options.dtype == "fp32" ? 4 : 2;
    for (const std::uint64_t memory : options.memories)
        if (memory < most_dim * bytes || memory > (std::uint64_t{1} << 40))
            throw std::invalid_argument(
                fmt::format("--memory is {} bytes, allowed is from a row of the head dimension, {} bytes, to 1 TiB",
                            memory, most_dim * bytes));
}

// Every block is walked, and where some are left out a list says which.
void check_blocks(const TrafficProblem& problem) {
    const baselines::Tile tile = tile_of(problem);
    if (tile.Br == 0 || problem.N / tile.Br * (problem.N / tile.Bc) <= 1 << 28) return;
    throw std::invalid_argument(fmt::format("--seqlen is {}, allowed with blocks of {} x {} are {} blocks in all",
                                            problem.N, tile.Br, tile.Bc, 1 << 28));
}

Algorithm algorithm_of(const std::string& name) {
    return name == "standard" ? Algorithm::standard : name == "flash1" ? Algorithm::flash1 : Algorithm::flash2;
}

// Adds the numbers of one pass.
void add(Row& row, const TrafficProblem& problem) {
    const baselines::Traffic counted = counted_traffic(problem);
    const baselines::AnalyticTraffic analytic = analytic_traffic(problem);
    row.counted.loads += row.heads * counted.loads;
    row.counted.stores += row.heads * counted.stores;
    row.counted.fast = std::max(row.counted.fast, counted.fast);
    const auto heads = static_cast<double>(row.heads);
    row.analytic.elements += heads * analytic.elements;
    row.analytic.below += heads * analytic.below;
    row.analytic.above += heads * analytic.above;
}

Row row_of(const Options& options, const std::string& pass, std::int64_t head_dim, std::uint64_t memory,
           std::int64_t seqlen, const std::string& algorithm) {
    Row row{.pass = pass,
            .algorithm = algorithm,
            .dtype = options.dtype,
            .seqlen = seqlen,
            .head_dim = head_dim,
            .memory = memory,
            .heads = options.heads,
            .causal = options.causal,
            .density = options.density};
    TrafficProblem problem{.algorithm = algorithm_of(algorithm),
                           .N = seqlen,
                           .d = head_dim,
                           .M = row.M(),
                           .causal = options.causal,
                           .density = options.density};
    if (!options.tile.empty()) problem.tile = {options.tile[0], options.tile[1]};
    check_blocks(problem);
    for (const Direction direction : {Direction::backward, Direction::forward}) {
        if (pass == (direction == Direction::forward ? "backward" : "forward")) continue;
        problem.direction = direction;
        row.tile = tile_of(problem);
        add(row, problem);
    }
    return row;
}

}  // namespace

std::optional<double> Row::lower_bound() const {
    if (pass == "both" || M() > seqlen * head_dim || causal || density < 1.0) return std::nullopt;
    const double Nd = static_cast<double>(seqlen) * static_cast<double>(head_dim);
    return static_cast<double>(heads) * Nd * Nd / static_cast<double>(M());
}

std::vector<Row> rows_of(const Options& options) {
    check(options);
    std::vector<Row> rows;
    for (const auto& pass : options.passes)
        for (const std::int64_t head_dim : options.head_dims)
            for (const std::uint64_t memory : options.memories)
                for (const std::int64_t seqlen : options.seqlens)
                    for (const auto& algorithm : options.algorithms)
                        rows.push_back(row_of(options, pass, head_dim, memory, seqlen, algorithm));
    return rows;
}

nlohmann::json to_json(const Row& row) {
    const std::optional<double> bound = row.lower_bound();
    return {{"pass", row.pass},
            {"algorithm", row.algorithm},
            {"dtype", row.dtype},
            {"seqlen", row.seqlen},
            {"head_dim", row.head_dim},
            {"memory_bytes", row.memory},
            {"memory_elements", row.M()},
            {"heads", row.heads},
            {"causal", row.causal},
            {"density", row.density},
            {"Br", row.tile.Br},
            {"Bc", row.tile.Bc},
            {"blocks_elements", row.counted.fast},
            {"counted_loads", row.counted.loads},
            {"counted_stores", row.counted.stores},
            {"counted_elements", row.counted.elements()},
            {"counted_bytes", row.bytes()},
            {"analytic_elements", row.analytic.elements},
            {"rounding_below", row.analytic.below},
            {"rounding_above", row.analytic.above},
            {"lower_bound_elements", bound ? nlohmann::json(*bound) : nlohmann::json()}};
}

}  // namespace flashtile::cli::traffic
