// backward_launches.cpp: see backward_launches.h.
#include "cuda/plan/backward_launches.h"

#include "cuda/jit/config_fields.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm80.h"
#include "functions/program.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kMostUnits = std::int64_t{1} << 40;  // no size of the workspace overflows

// A kernel before or after the main one. It needs nothing of a config but where dQ lies, and so rows of sequences:
// every mask and option shares it.
Launch around(const Problem& p, const KernelConfig& main, Kernel kernel, int warps) {
    KernelConfig c = main;
    reset(c, FieldGroup::option);
    reset(c, FieldGroup::manner);
    c.packed = main.packed;
    // The order in which D is summed follows from how wide loads are, and these from where tensors lie.
    if (p.batch_invariant && kernel == Kernel::backward_prepare) c.vector_bytes = size_of(c.element);
    c.blocks_per_sm = 1;
    c.warps = warps;
    c.kernel = kernel;
    return {.config = c,
            .shared_memory = shared_bytes(c),
            .blocks = query_blocks(p, main.Br),
            .why = "a unit of Br queries a block"};
}

Launch bias_launch(const Question& q, const KernelConfig& main) {
    KernelConfig c = q.config;  // it is deterministic, whatever is asked for
    c.kernel = Kernel::backward_bias_sm80;
    const std::span<const Tile> table = c.element == Element::fp32 ? std::span<const Tile>(sm80::kBackwardBiasFp32)
                                                                   : std::span<const Tile>(sm80::kBackwardBias);
    // no more than a unit, which holds rows of one sequence
    std::optional<Launch> launch = first_fit(c, table, q.device, main.Br);
    if (!launch) unsupported(no_room(q.problem, q.device, "backward"));
    const Access& access = q.access;
    const std::int64_t rows = access.bias_rows == 1 ? 1 : blocks_of(access.bias_rows, launch->config.Br);
    const std::int64_t columns = access.bias_cols == 1 ? 1 : blocks_of(access.bias_cols, launch->config.Bc);
    launch->blocks = checked_blocks(access.bias_batch * access.bias_heads * rows * columns);
    return *launch;
}

// dtensors are overwritten, and added to.
void add_tensor_launches(const Question& q, const KernelConfig& main, Plan& plan) {
    KernelConfig clear;
    clear.kernel = Kernel::clear_tensors;
    clear.element = main.element;
    clear.warps = 8;
    plan.launches.push_back(
        {.config = clear, .blocks = q.device.multiprocessors, .why = "as many as multiprocessors, whatever the sizes"});
    if (functions::view_of(q.problem.functions, nullptr).by_loads.load_count == 0) return;
    KernelConfig c = q.config;
    c.kernel = Kernel::backward_tensors_sm80;
    const std::span<const Tile> table = c.element == Element::fp32 ? std::span<const Tile>(sm80::kBackwardBiasFp32)
                                                                   : std::span<const Tile>(sm80::kBackwardBias);
    std::optional<Launch> launch = first_fit(c, table, q.device, main.Br);
    if (!launch) unsupported(no_room(q.problem, q.device, "backward"));
    launch->blocks = query_blocks(q.problem, launch->config.Br);
    plan.launches.push_back(*launch);
}

// One thread block for each head. It needs to know where the rows lie that backward_prepare has left.
Launch sinks_launch(const Problem& p, const KernelConfig& main) {
    KernelConfig c;
    c.kernel = Kernel::backward_sinks;
    c.element = main.element;
    c.packed = main.packed;
    c.Br = main.Br;
    c.warps = 16;
    return {.config = c, .shared_memory = shared_bytes(c), .blocks = checked_blocks(p.heads), .why = "a head a block"};
}

void add_workspace(const Problem& p, const KernelConfig& main, Plan& plan) {
    plan.unit_rows = main.Br;
    plan.units = p.units(main.Br);
    if (plan.units > kMostUnits / p.heads)
        unsupported("the problem's backward pass takes " + std::to_string(plan.units) + " units of " +
                    std::to_string(main.Br) + " queries for each of " + std::to_string(p.heads) +
                    " heads, supported is at most " + std::to_string(kMostUnits) + " in all");
    const auto units = static_cast<std::size_t>(p.heads * plan.units);
    const auto rows = units * static_cast<std::size_t>(main.Br);
    const auto add = [&](Region name, std::size_t bytes) {
        constexpr std::size_t kAlignment = PlannedWorkspace::kAlignment;
        plan.workspace.add(name, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    };
    add(Region::lse, rows * sizeof(float));
    add(Region::lse_natural, rows * sizeof(float));
    add(Region::D, rows * sizeof(float));
    add(Region::dq, rows * static_cast<std::size_t>(padded(main, main.head_dim)) * sizeof(float));
    add(Region::turn, units * kTurnsOfUnit * sizeof(std::uint32_t));
}

}  // namespace

void add_backward_launches(const Question& q, const Launch& main, int warps, Plan& plan) {
    const KernelConfig& c = main.config;
    plan.launches.push_back(around(q.problem, c, Kernel::backward_prepare, warps));
    plan.main_launch = plan.launches.size();
    plan.launches.push_back(main);
    plan.launches.push_back(around(q.problem, c, Kernel::backward_finish, warps));
    if (q.access.dbias) plan.launches.push_back(bias_launch(q, c));
    if (q.access.dtensors) add_tensor_launches(q, c, plan);
    if (q.access.dsinks) plan.launches.push_back(sinks_launch(q.problem, c));
    add_workspace(q.problem, c, plan);
}

}  // namespace flashtile::gpu
