// plan_report.cpp: see plan_report.h.
#include "cpu/plan_report.h"

#include <type_traits>

#include "core/error.h"
#include "core/json.h"
#include "cpu/features.h"
#include "cpu/plan.h"
#include "cpu/threads.h"
#include "cpu/tuned_blocks.h"
#include "flashtile/version.h"
#include "functions/cost.h"
#include "shared/key_splits.h"

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
        case RowsOf::parts:
            return "parts of all places";
        case RowsOf::tensors:
            return "tensors";
        case RowsOf::dbias:
            return "rows of dbias";
    }
    return "rows";
}

// The length of every sequence is the problem's own, and none lies in memory.
bool lengths_known(const Problem& p, const Operands& x) {
    return !p.packed && !x.seqused_k && !p.appends;
}

// How the keys of a sequence with few queries are split. Where lengths lie in memory, `count` is the most that any may
// have, and `keys` are those of a split of the longest.
Members splits_report(const Plan& plan, const Problem& p, const Operands& x) {
    const std::int64_t queries = plan.kernels.decode_queries(p);
    Members report;
    report.add("queries", queries);
    if (plan.decode.queries == 0)
        return report.add("count", 1).add("count_exact", true).add("why", "longer sequences are not split");
    const KeySplits splits = KeySplits::of(p.seqlen_k, {p.num_splits});
    const bool known = lengths_known(p, x);
    constexpr std::int64_t kAtFewest = KeySplits::kMost * KeySplits::kFewestKeys;
    const char* const why = p.num_splits > 0          ? "num_splits, as far as steps of 128 keys allow"
                            : p.seqlen_k <= kAtFewest ? "512 keys each, as up to 32768 keys"
                                                      : "64 at most, in steps of 128 keys";
    static_assert(KeySplits::kUnit == 128 && KeySplits::kFewestKeys == 512 && KeySplits::kMost == 64);
    return report.add("count", known ? std::int64_t{splits.count} : plan.decode.splits)
        .add("count_exact", known)
        .add("keys", std::int64_t{splits.keys})
        .add("why", why);
}

// What the checks refuse in a backward call.
bool forward_alone(const Problem& p) {
    return p.cache || p.first_k || p.used_q || p.tree_mask || p.has_e4m3();
}

struct Tasks {
    std::int64_t count;
    bool exact;
};

// Of packed sequences it is an upper bound, and so it is where a task is a split of a sequence whose length lies in
// memory, or which others share.
Tasks tasks_of(const Step& step, const Problem& p, const Operands& x) {
    switch (step.rows_of) {
        case RowsOf::dbias:
        case RowsOf::heads:
        case RowsOf::parts:
        case RowsOf::tensors:
            return {step.most_tasks(), true};
        case RowsOf::splits:
            if (p.seqlen_q == 0) return {0, true};
            if (step.length > 1 && lengths_known(p, x) && p.prefix_groups == 0)
                return {step.batch * step.heads * KeySplits::of(p.seqlen_k, {p.num_splits}).count, true};
            return {step.most_tasks(), !p.packed && !(step.length > 1)};
        default:
            return {step.most_tasks(), !p.packed};
    }
}

Members step_report(const Step& step, const Plan& plan, const Problem& p, const Operands& x) {
    const Tasks tasks = tasks_of(step, p, x);
    Members report;
    report.add("kernel", step.kernel);
    if (step.Br > 0) report.add("Br", step.Br).add("Bc", step.Bc);
    return report.add("task_rows", step.rows)
        .add("rows_of", name(step.rows_of))
        .add("why", step.why)
        .add("measured", step.measured)
        .add("tasks", tasks.count)
        .add("tasks_exact", tasks.exact)
        .add("threads", std::min<std::int64_t>(tasks.count, plan.threads));
}

// What `flashtile tune --device=cpu` may choose from: the rows of a task, the plan's own first.
Members alternatives(const Plan& plan, const Step& step, Pass pass, const Problem& p, const RowChoice& choice) {
    Members list;
    if (choice.least == 0) return list;
    const auto add = [&](std::int64_t rows) {
        const TunedBlocks tuned{.version = FLASHTILE_VERSION_STRING,
                                .cpu = tuned_cpu(),
                                .subject = subject_of(pass, plan.kernels.isa, plan.threads, p),
                                .rows = rows,
                                .why = ""};
        const std::string tile = std::to_string(rows) + (pass == Pass::forward ? " queries" : " keys") + " a task";
        list.raw(Members().add("tile", tile).add("choice", to_text(tuned)).in("{}"));
    };
    add(step.rows);
    // More than the sequence has are no other tasks.
    for (std::int64_t rows = choice.least; rows <= choice.most && rows < 2 * step.length; rows *= 2)
        if (rows != step.rows && !(rows >= step.length && step.rows >= step.length)) add(rows);
    return list;
}

// The step whose rows can be chosen.
Members alternatives_of(const Plan& plan, const Problem& p, const Operands& x) {
    return alternatives(plan, plan.steps[plan.steps.size() - 1], Pass::forward, p, forward_row_choice(plan, p, x));
}
Members alternatives_of(const BackwardPlan& plan, const Problem& p, const Operands&) {
    return alternatives(plan, plan.steps[1], Pass::backward, p, backward_row_choice());
}

template <class PlanPass>
Members pass_report(PlanPass plan_pass, const Problem& p, const Operands& x, const Execution& execution) try {
    const auto plan = plan_pass(p, x, execution);
    const IsaReasons isa = isa_reasons(p.dtype_of_k(), execution.isa);
    Members passed_over, kernels, report;
    for (const auto& [name, reason] : isa.passed_over) passed_over.add(name, reason);
    for (const Step& step : plan.steps) kernels.raw(step_report(step, plan, p, x).in("{}"));
    report.add("candidate", isa_name(plan.kernels.isa)).add("why", isa.why).add("passed_over", passed_over, "{}");
    report.add("arithmetic", plan.choice.arithmetic).add("why_arithmetic", plan.choice.why);
    if (plan.choice.tiles_from > 0) report.add("tiles_from", plan.choice.tiles_from);
    if constexpr (std::is_same_v<decltype(plan), const Plan>) report.add("splits", splits_report(plan, p, x), "{}");
    return report.add("kernels", kernels, "[]")
        .add("alternatives", alternatives_of(plan, p, x), "[]")
        .add("workspace", std::uint64_t{plan.workspace()});
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
        .add("functions", functions::cost_report(p.functions), "{}")
        .add("forward", pass_report(plan_forward, p, x, execution), "{}")
        .add("backward",
             forward_alone(p) ? Members().add("why_not", "it takes no cache, first_k, seqused_q, tree_mask or e4m3")
                              : pass_report(plan_backward, p, with_gradient, execution),
             "{}")
        .in("{}");
}

}  // namespace flashtile::cpu
