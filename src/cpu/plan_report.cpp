// plan_report.cpp: see plan_report.h.
#include "cpu/plan_report.h"

#include "core/error.h"
#include "core/json.h"
#include "cpu/features.h"
#include "cpu/plan.h"
#include "cpu/threads.h"

namespace flashtile::cpu {
namespace {

const char* name(RowsOf rows_of) {
    switch (rows_of) {
        case RowsOf::queries:
            return "queries";
        case RowsOf::keys:
            return "keys";
        case RowsOf::heads:
            return "heads";
        case RowsOf::splits:
            return "splits of keys";
        case RowsOf::dbias:
            return "rows of dbias";
    }
    return "rows";
}

Members step_report(const Step& step, const Plan& plan, const Problem& p) {
    Members report;
    report.add("kernel", step.kernel);
    if (step.Br > 0) report.add("Br", step.Br).add("Bc", step.Bc);
    return report.add("task_rows", step.rows)
        .add("rows_of", name(step.rows_of))
        .add("why", step.why)
        .add("tasks", step.most_tasks())
        .add("tasks_exact", !p.packed || step.rows_of == RowsOf::dbias || step.rows_of == RowsOf::heads)
        .add("threads", std::min<std::int64_t>(step.most_tasks(), plan.threads));
}

template <class PlanPass>
Members pass_report(PlanPass plan_pass, const Problem& p, const Operands& x, const Execution& execution) try {
    const auto plan = plan_pass(p, x, execution);
    const IsaReasons isa = isa_reasons(p.dtype, execution.isa);
    Members passed_over, kernels, report;
    for (const auto& [name, reason] : isa.passed_over) passed_over.add(name, reason);
    for (const Step& step : plan.steps) kernels.raw(step_report(step, plan, p).in("{}"));
    report.add("candidate", isa_name(plan.kernels.isa)).add("why", isa.why).add("passed_over", passed_over, "{}");
    report.add("arithmetic", plan.choice.arithmetic).add("why_arithmetic", plan.choice.why);
    if (plan.choice.tiles_from > 0) report.add("tiles_from", plan.choice.tiles_from);
    return report.add("kernels", kernels, "[]").add("workspace", std::uint64_t{plan.workspace()});
} catch (const Error& error) {
    if (error.status() != FLASHTILE_UNSUPPORTED) throw;
    return Members().add("why_not", error.what());
}

}  // namespace

std::string plan_report(const Problem& p, const Operands& x, const Execution& execution) {
    Operands with_gradient = x;
    with_gradient.dbias = x.bias;
    return Members()
        .add("problem", to_string(p))
        .add("device", "cpu")
        .add("threads", threads_for(execution))
        .add("forward", pass_report(plan_forward, p, x, execution), "{}")
        .add("backward", pass_report(plan_backward, p, with_gradient, execution), "{}")
        .in("{}");
}

}  // namespace flashtile::cpu
