// options.h: the options of the benchmark, and the grid of points that they give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/point.h"

namespace flashtile::cli::bench {

struct Options {
    // Of forward, backward, both, memory; or decode, functions, baselines or paper alone. Empty: the first three.
    std::vector<std::string> work;
    std::vector<std::int64_t> head_dims = {64, 128};
    std::vector<std::int64_t> seqlens;  // empty: 512, 1024 .. 16384, as far as `tokens` reaches
    std::string causal = "both";
    std::vector<std::string> dtypes = {"fp32"};
    std::int64_t heads = 0;     // 0: hidden dimension 2048
    std::int64_t kv_heads = 0;  // 0: as heads
    std::int64_t batch = 0;     // 0: tokens / seqlen
    std::int64_t tokens = 16384;
    std::vector<int> threads;  // empty: flashtile's setting
    std::string isa = "auto";
    std::string device = "cpu";
    std::vector<std::string> against;  // of peer_names(), and names of other_method_names()
    std::string json;
    std::string plot;
    std::string folder = "paper";                // of paper
    std::string once;                            // of baselines: bench_cuda/once.h
    std::int64_t queries = 1;                    // of decode
    std::vector<std::int64_t> page_sizes = {0};  // of decode; 0 is dense
    int repeats = 5;
    double minutes = 0.0;  // 0: no limit
};

// The passes to time, in the order asked for; "memory" is none.
std::vector<Pass> passes(const Options& options);
bool wants_memory(const Options& options);
// Those that run in child processes: torch, openvino.
const std::vector<std::string>& peer_names();
bool wants(const Options& options, const std::string& peer);
// What `against` names beside them.
std::vector<std::string> others(const Options& options);

// Throws std::invalid_argument, naming the option, where values do not go together.
std::vector<Point> grid(const Options& options);

bool wants_paper(const Options& options);

bool wants_functions(const Options& options);

bool wants_decode(const Options& options);
// Where sizes are not given: 32 query heads and 8 key heads, one sequence, and keys and values that take 4 times the
// last-level cache, and a quarter of it.
std::vector<Point> decode_grid(const Options& options, std::int64_t last_level_cache_bytes);

// The sequence lengths that `memory` goes through.
std::vector<std::int64_t> memory_seqlens(const Options& options);

}  // namespace flashtile::cli::bench
