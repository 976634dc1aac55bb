// plan.h: `flashtile info --plan`: which CUDA kernels a problem gets, on a GPU that need not be here, and why.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attention_options.h"
#include "shape_options.h"

namespace flashtile::cli {

struct PlanArguments {
    bool wanted = false;
    AttentionOptions attention;
    ShapeOptions shape{.heads = 16, .seqlen_q = 4096, .head_dim = 128};
    bool packed = false;
    bool seqused = false;
    bool alibi = false;
    bool bias = false;
    bool mask = false;
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;
    bool no_registers = false;
    std::string device_name;  // "": the GPU that is here
    int device = 0;           // its ordinal
};

void add_plan_flags(CLI::App& command, PlanArguments& arguments);
// flashtile_plan_report's JSON.
std::string plan_report_of(const PlanArguments& arguments);
void print_plan(const PlanArguments& arguments, bool json);

}  // namespace flashtile::cli
