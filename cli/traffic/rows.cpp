// rows.cpp: see rows.h.
#include "traffic/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace flashtile::cli::traffic {
namespace {

using baselines::Algorithm;
using baselines::Direction;
using baselines::TrafficProblem;

// Fewer queries than its lower end may be decoded, and the walk over more than its upper end would take minutes.
constexpr std::int64_t kFewestForBackend = 64, kMostForBackend = 65536;
constexpr std::int64_t kWidestForBackend = 512;    // the library's
constexpr std::int64_t kMostHeadsForBackend = 64;  // that share a key head, since each of them is walked

// Why the CPU backend's kernels cannot be counted on such problems; empty where they can.
std::string backend_refuses(const Options& options) {
    const auto [shortest, longest] = std::ranges::minmax(options.seqlens);
    if (shortest < kFewestForBackend || longest > kMostForBackend)
        return fmt::format("--seqlen is {}, allowed with --algorithm=cpu is {} to {}",
                           shortest < kFewestForBackend ? shortest : longest, kFewestForBackend, kMostForBackend);
    if (const std::int64_t widest = std::ranges::max(options.head_dims); widest > kWidestForBackend)
        return fmt::format("--head-dim is {}, allowed with --algorithm=cpu is 1 to {}", widest, kWidestForBackend);
    if (options.kv_heads != 0 && options.heads > kMostHeadsForBackend * options.kv_heads)
        return fmt::format("--kv-heads is {}, allowed with --algorithm=cpu is at least --heads, {}, divided by {}",
                           options.kv_heads, options.heads, kMostHeadsForBackend);
    if (options.density < 1.0)
        return fmt::format("--density is {}, allowed with --algorithm=cpu is 1", options.density);
    return "";
}

std::vector<std::string> algorithms_of(const Options& options) {
    if (!options.algorithms.empty()) return options.algorithms;
    std::vector<std::string> all = {"standard", "flash1", "flash2"};
    if (backend_refuses(options).empty()) all.emplace_back("cpu");
    return all;
}

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
    if (options.kv_heads != 0 && options.heads % options.kv_heads != 0)
        throw std::invalid_argument(
            fmt::format("--kv-heads is {}, allowed are divisors of --heads, {}", options.kv_heads, options.heads));
    if (std::ranges::count(options.algorithms, "cpu") == 0) return;
    if (const std::string refusal = backend_refuses(options); !refusal.empty()) throw std::invalid_argument(refusal);
}

DType dtype_of(const std::string& name) {
    return name == "fp32" ? DType::fp32 : name == "fp16" ? DType::fp16 : DType::bf16;
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

void add(baselines::AnalyticTraffic& sum, const baselines::AnalyticTraffic& one, std::int64_t times) {
    const auto n = static_cast<double>(times);
    sum.elements += n * one.elements;
    sum.below += n * one.below;
    sum.above += n * one.above;
}

bool has(const Row& row, const char* pass) {
    return row.pass == pass || row.pass == "both";
}

// Adds the numbers of one pass of an algorithm of src/baselines.
void add_pass(Row& row, const Options& options, Direction direction) {
    TrafficProblem problem{.algorithm = algorithm_of(row.algorithm),
                           .direction = direction,
                           .N = row.seqlen,
                           .d = row.head_dim,
                           .M = row.M(),
                           .causal = row.causal,
                           .density = row.density};
    if (!options.tile.empty()) problem.tile = {options.tile[0], options.tile[1]};
    check_blocks(problem);
    row.tile = tile_of(problem);
    const baselines::Traffic counted = counted_traffic(problem);
    row.counted.loads += row.heads * counted.loads;
    row.counted.stores += row.heads * counted.stores;
    row.counted.fast = std::max(row.counted.fast, counted.fast);
    row.bytes += static_cast<double>(row.heads * counted.elements() * row.element_bytes());
    add(row.analytic, analytic_traffic(problem), row.heads);
}

// Adds the numbers of one pass of the CPU backend.
void add_backend_pass(Row& row, Pass pass) {
    row.plan = backend_plan(pass, row.dtype, row.heads, row.kv_heads, row.seqlen, row.head_dim, row.causal);
    row.tile = row.plan.tile;
    const counting::CountedPass one = {.pass = pass,
                                       .dtype = dtype_of(row.dtype),
                                       .group = row.heads / row.kv_heads,
                                       .N = row.seqlen,
                                       .d = row.head_dim,
                                       .causal = row.causal,
                                       .task_rows = row.plan.task_rows};
    row.moves.add(count_moves(one), row.kv_heads);
    const counting::TensorMoves all = row.moves.all();
    row.counted = {all.loads, all.stores, static_cast<std::int64_t>(row.moves.scratch) / row.element_bytes()};
    row.bytes = static_cast<double>(all.bytes);
    add(row.analytic, analytic_moves(one, row.tile), row.kv_heads);
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
            .kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads,
            .causal = options.causal,
            .density = options.density};
    // Forward last: the blocks of a row of both are its.
    if (row.of_backend()) {
        if (has(row, "backward")) add_backend_pass(row, Pass::backward);
        if (has(row, "forward")) add_backend_pass(row, Pass::forward);
    } else {
        if (has(row, "backward")) add_pass(row, options, Direction::backward);
        if (has(row, "forward")) add_pass(row, options, Direction::forward);
    }
    return row;
}

nlohmann::json to_json(const counting::Moves& moves) {
    using counting::Moved;
    const std::pair<const char*, Moved> tensors[] = {
        {"q", Moved::q},       {"k", Moved::k}, {"v", Moved::v},   {"out", Moved::out}, {"lse", Moved::lse},
        {"dout", Moved::dout}, {"D", Moved::D}, {"dq", Moved::dq}, {"dk", Moved::dk},   {"dv", Moved::dv}};
    nlohmann::json result;
    for (const auto& [name, tensor] : tensors) {
        const counting::TensorMoves& of = moves[tensor];
        result[name] = {{"loads", of.loads}, {"stores", of.stores}, {"bytes", of.bytes}};
    }
    return result;
}

}  // namespace

std::optional<double> Row::lower_bound() const {
    if (pass == "both" || M() > seqlen * head_dim || causal || density < 1.0) return std::nullopt;
    const double Nd = static_cast<double>(seqlen) * static_cast<double>(head_dim);
    return static_cast<double>(heads) * Nd * Nd / static_cast<double>(M());
}

std::vector<Row> rows_of(const Options& options) {
    check(options);
    const std::vector<std::string> algorithms = algorithms_of(options);
    std::vector<Row> rows;
    for (const auto& pass : options.passes)
        for (const std::int64_t head_dim : options.head_dims)
            for (const std::uint64_t memory : options.memories)
                for (const std::int64_t seqlen : options.seqlens)
                    for (const auto& algorithm : algorithms)
                        rows.push_back(row_of(options, pass, head_dim, memory, seqlen, algorithm));
    return rows;
}

nlohmann::json to_json(const Row& row) {
    const std::optional<double> bound = row.lower_bound();
    nlohmann::json result = {{"pass", row.pass},
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
                             {"counted_bytes", row.bytes},
                             {"analytic_elements", row.analytic.elements},
                             {"rounding_below", row.analytic.below},
                             {"rounding_above", row.analytic.above},
                             {"lower_bound_elements", bound ? nlohmann::json(*bound) : nlohmann::json()}};
    if (row.of_backend())
        result.update({{"kv_heads", row.kv_heads},
                       {"isa", row.plan.isa},
                       {"task_rows", row.plan.task_rows},
                       {"moved", to_json(row.moves)}});
    return result;
}

}  // namespace flashtile::cli::traffic
