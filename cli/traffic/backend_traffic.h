// backend_traffic.h: what flashtile's own CPU backend moves between slow and fast memory where it runs a problem as its
// plan for this machine says: counted by its kernels (src/cpu/counted), and by the formulas of docs/algorithm.md.
#pragma once

#include <cstdint>
#include <string>

#include "baselines/traffic.h"
#include "cpu/counted/moves.h"

namespace flashtile::cli::traffic {

// The library's plan for one pass.
struct BackendPlan {
    std::string isa;
    baselines::Tile tile{};
    std::int64_t task_rows = 0;  // queries of a task in forward, keys in backward
};

// With AMX it is AVX-512's plan: tiles copy the keys of several blocks together, and what they move is not counted.
BackendPlan backend_plan(Pass pass, const std::string& dtype, std::int64_t heads, std::int64_t kv_heads, std::int64_t N,
                         std::int64_t d, bool causal);

// By formula what count_moves counts, of one key head and its query heads.
baselines::AnalyticTraffic analytic_moves(const counting::CountedPass& pass, const baselines::Tile& tile);

}  // namespace flashtile::cli::traffic
