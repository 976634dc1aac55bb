// plan_report.cpp: see plan_report.h.
#include "cuda/plan_report.h"

#include "core/error.h"
#include "cuda/choices.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/render.h"
#include "cuda/json.h"

namespace flashtile::gpu {
namespace {

Members kernel_report(const PlannedKernel& kernel, int architecture, bool with_registers) {
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
        .add("why_not_sm90", kernel.why_not_sm90)
        .add("config", to_string(c));
    if (!with_registers) return report;
    if (const CompilerReport made = read_report(compile(c, architecture, true).log); made.registers > 0)
        report.add("registers", made.registers).add("spilled_bytes", made.spill_bytes);
    return report;
}

// Of the kernel whose tile may be chosen: a choice for each tile, the table's own first.
Members alternatives_report(const PlannedKernel& table, const Problem& problem, const DeviceFacts& device) {
    Members list;
    for (const Choice& choice : alternatives_of(table, problem, device))
        list.raw(Members().add("tile", describe(choice.tile)).add("choice", to_text(choice)).in("{}"));
    return list;
}

// What `list` writes, or why there is no plan.
template <class List>
Members or_why_not(List list) try {
    return list();
} catch (const Error& error) {
    if (error.status() != FLASHTILE_UNSUPPORTED) throw;
    return Members().add("why_not", error.what());
}

}  // namespace

std::string plan_report(const Problem& problem, const Access& access, const DeviceFacts& device, bool compile) {
    const std::vector<Choice> choices = choices_on(device);
    const std::string no_compiler = compile ? why_no_nvrtc() : "";
    const auto report = [&](const PlannedKernel& kernel) {
        return kernel_report(kernel, device.architecture, compile && no_compiler.empty()).in("{}");
    };
    const Members forward = or_why_not([&] {
        const ForwardPlan plan = plan_forward(problem, access, device, choices);
        const PlannedKernel table = plan_forward(problem, access, device).forward;
        return Members()
            .add("kernels", Members().raw(report(plan.forward)), "[]")
            .add("alternatives", alternatives_report(table, problem, device), "[]");
    });
    const Members backward = or_why_not([&] {
        const BackwardPlan plan = plan_backward(problem, access, device, choices);
        const PlannedKernel table = plan_backward(problem, access, device).backward;
        Members kernels;
        for (const PlannedKernel* kernel : {&plan.prepare, &plan.backward, &plan.finish, &plan.bias})
            if (kernel->config.warps != 0) kernels.raw(report(*kernel));
        return Members()
            .add("kernels", kernels, "[]")
            .add("alternatives", alternatives_report(table, problem, device), "[]")
            .add("workspace", std::uint64_t{plan.workspace});
    });
    return Members()
        .add("problem", to_string(problem))
        .add("device", device.name)
        .add("target", target_name(device.architecture))
        .add("why_no_registers", no_compiler)
        .add("forward", forward, "{}")
        .add("backward", backward, "{}")
        .in("{}");
}

}  // namespace flashtile::gpu
