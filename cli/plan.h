// plan.h: `flashtile info --plan`: how a problem runs, and why so: on this CPU, or on a GPU that need not be here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attention_options.h"
#include "e4m3_flags.h"
#include "function_flags.h"
#include "shape_options.h"

namespace flashtile::cli {

struct PlanArguments {
    PlanArguments() { attention.device = ""; }  // not "cpu": the first of CUDA and the CPU that can run it

    bool wanted = false;
    AttentionOptions attention;
    E4m3Flags e4m3;
    FunctionFlags functions;
    ShapeOptions shape{.heads = 16, .seqlen_q = 4096, .head_dim = 128};
    bool packed = false;
    std::int64_t page_size = 0;  // 0: k and v are no pages
    bool seqused = false;
    bool diagonals = false;
    bool origins = false;
    bool alibi = false;
    bool bias = false;
    bool mask = false;
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;
    bool no_registers = false;
    std::string device_name;  // "": the GPU that is here
    int device = 0;           // the GPU's ordinal
};

void add_plan_flags(CLI::App& command, PlanArguments& arguments);
// flashtile_plan_report's JSON; of CUDA unless the device is "cpu".
std::string plan_report_of(const PlanArguments& arguments);
// With whether the problem can run here, unless the GPU is given by name.
void print_plan(PlanArguments arguments, bool json);

}  // namespace flashtile::cli
