// plan_report.cpp: see plan_report.h.
#include "cuda/plan_report.h"

#include "core/error.h"
#include "core/json.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/render.h"
#include "cuda/kernel_names.h"
#include "cuda/tuned_tiles.h"
#include "functions/cost.h"

namespace flashtile::gpu {
namespace {

Members kernel_report(const Launch& kernel, int architecture, bool with_registers) {
    const KernelConfig& c = kernel.config;
    Members report;
    report.add("kernel", name_of(c.kernel))
        .add("Br", c.Br)
        .add("Bc", c.Bc)
        .add("warps", c.warps)
        .add("stages", c.stages)
        .add("value_slices", c.value_slices)
        .add("group_rows", c.group_rows)
        .add("shared_memory", kernel.shared_memory)
        .add("vector_bytes", c.vector_bytes)
        .add("blocks", static_cast<std::uint64_t>(kernel.blocks))
        .add("why", kernel.why)
        .add("measured", kernel.measured)
        .add("config", to_string(c));
    if (!with_registers) return report;
    if (const CompilerReport made = read_report(compile(c, architecture, true).log); made.registers > 0)
        report.add("registers", made.registers).add("spilled_bytes", made.spill_bytes);
    return report;
}

// Of the kernel whose tile may be a tuned one: what keeps each tile for it, the table's own first.
Members alternatives_report(const Launch& table, const Problem& problem, const DeviceFacts& device) {
    Members list;
    for (const TunedTile& tuned : alternatives_of(table, problem, device))
        list.raw(Members().add("tile", describe(tuned.tile)).add("choice", to_text(tuned)).in("{}"));
    return list;
}

Members passed_over_report(const PassedOverList& passed_over) {
    Members reasons;
    for (const PassedOver& each : passed_over) reasons.add(each.name, each.reason);
    return reasons;
}

// What `list` writes, or why there is no plan.
template <class List>
Members or_why_not(List list) try {
    return list();
} catch (const NoCandidate& none) {
    return Members().add("why_not", none.what()).add("passed_over", passed_over_report(none.passed_over()), "{}");
} catch (const Error& error) {
    if (error.status() != FLASHTILE_UNSUPPORTED) throw;
    return Members().add("why_not", error.what());
}

}  // namespace

std::string plan_report(const Problem& problem, const Access& access, const DeviceFacts& device, bool compile) {
    const std::vector<TunedTile> tuned = tuned_tiles_on(device);
    const std::string no_compiler = compile ? why_no_nvrtc() : "";
    const auto report = [&](auto plan_pass) {
        return or_why_not([&] {
            const Plan plan = plan_pass(problem, access, device, TunedTiles(tuned));
            const Plan from_tables = plan_pass(problem, access, device, TunedTiles());
            Members kernels;
            for (const Launch& launch : plan.launches)
                kernels.raw(kernel_report(launch, device.architecture, compile && no_compiler.empty()).in("{}"));
            return Members()
                .add("candidate", plan.name)
                .add("passed_over", passed_over_report(plan.passed_over), "{}")
                .add("kernels", kernels, "[]")
                .add("alternatives", alternatives_report(from_tables.main(), problem, device), "[]")
                .add("workspace", std::uint64_t{plan.workspace.bytes});
        });
    };
    return Members()
        .add("problem", to_string(problem))
        .add("device", device.name)
        .add("target", target_name(device.architecture))
        .add("why_no_registers", no_compiler)
        .add("functions", functions::cost_report(problem.functions), "{}")
        .add("forward", report(plan_forward), "{}")
        .add("backward", report(plan_backward), "{}")
        .in("{}");
}

}  // namespace flashtile::gpu
