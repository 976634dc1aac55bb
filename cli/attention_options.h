// attention_options.h: the flags that say what attention to compute and how, declared once for all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention_names.h"

namespace flashtile::cli {

struct AttentionOptions {
    std::string causal;                           // "", "bottom-right" or "top-left"
    std::string align = "bottom-right";           // of window and ALiBi when causal is off
    std::vector<std::int64_t> window = {-1, -1};  // left, right
    double softcap = 0.0;
    std::optional<double> scale;
    double dropout = 0.0;
    std::uint64_t seed = 0;
    std::string dtype;  // "": the inputs'
    bool batch_invariant = false;
    bool exact_max = false;
    std::int64_t attention_chunk = 0;
    int num_splits = 0;
    std::int64_t diagonal = 0;
    std::vector<std::int64_t> origin = {0, 0, 0, 0};  // of b, h, i, j
    int threads = 0;
    std::string isa = "auto";
    std::string device = "cpu";

    // Adds the flags; a command with a --seed or --dtype of its own takes the groups that it can use.
    void add_to(CLI::App& app);
    void add_scores_to(CLI::App& app);     // --causal --window --align --softcap --scale
    void add_dropout_to(CLI::App& app);    // --dropout --seed
    void add_dtype_to(CLI::App& app);      // --dtype
    void add_bits_to(CLI::App& app);       // --batch-invariant --exact-max
    void add_serving_to(CLI::App& app);    // --attention-chunk --num-splits
    void add_shard_to(CLI::App& app);      // --diagonal --origin
    void add_execution_to(CLI::App& app);  // --threads --isa --device

    // All but dtype, which belongs to the tensors. Values are checked by the library, which knows what is allowed.
    flashtile::options to_options() const;
};

}  // namespace flashtile::cli
