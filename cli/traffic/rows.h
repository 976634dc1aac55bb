// rows.h: what `flashtile io` is asked for, and the numbers of each row.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "baselines/traffic.h"
#include "traffic/backend_traffic.h"

namespace flashtile::cli::traffic {

struct Options {
    std::vector<std::string> passes = {"forward", "backward"};  // both is the sum of the two
    std::vector<std::string> algorithms;                        // empty: all, but cpu only where it can be counted
    std::vector<std::int64_t> seqlens = {512, 1024, 2048, 4096, 8192, 16384};
    std::vector<std::int64_t> head_dims = {64};
    std::vector<std::uint64_t> memories = {192 * 1024};  // bytes of fast memory
    std::string dtype = "fp16";
    std::int64_t heads = 1;          // of all sequences
    std::int64_t kv_heads = 0;       // that share them; 0: as many
    std::vector<std::int64_t> tile;  // Br, Bc; empty: by each algorithm's rule
    bool causal = false;
    double density = 1.0;
    std::string json;
    std::string plot;
};

struct Row {
    std::string pass;
    std::string algorithm;
    std::string dtype;
    std::int64_t seqlen = 0;
    std::int64_t head_dim = 0;
    std::uint64_t memory = 0;  // bytes
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    bool causal = false;
    double density = 1.0;
    baselines::Tile tile{};  // of forward where the row is of both passes; of standard attention 0

    // Elements of all heads.
    baselines::Traffic counted{};  // but .fast is of one
    double bytes = 0.0;            // counted
    baselines::AnalyticTraffic analytic{};

    // Of the CPU backend.
    BackendPlan plan{};       // as `tile`
    counting::Moves moves{};  // of all heads

    std::int64_t element_bytes() const { return dtype == "fp32" ? 4 : 2; }
    bool of_backend() const { return algorithm == "cpu"; }
    std::int64_t M() const { return static_cast<std::int64_t>(memory) / element_bytes(); }
    // Proposition 3 of the FlashAttention paper is about d <= M <= N d, about one pass, and about no mask.
    std::optional<double> lower_bound() const;
};

// Grouped as they are printed: by pass, head dimension, memory and length. Throws std::invalid_argument, naming the
// option, where values do not go together.
std::vector<Row> rows_of(const Options& options);

nlohmann::json to_json(const Row& row);

}  // namespace flashtile::cli::traffic
