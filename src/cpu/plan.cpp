// plan.cpp: see plan.h.
#include "cpu/plan.h"

#include <algorithm>

#include "cpu/block_kinds.h"
#include "cpu/features.h"
#include "cpu/threads.h"
#include "cpu/tuned_blocks.h"
#include "shared/key_splits.h"

namespace flashtile::cpu {
namespace {

constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}

// Why a task has so many rows.
constexpr const char* kAll = "the sequence has no more";
constexpr const char* kForThreads = "so few that every thread has work";
constexpr const char* kMost = "the most that a task takes";

constexpr RowChoice kBackwardKeys = {32, 1024};

Plan plan_of(const Problem& p, const Execution& execution) {
    const Kernels& kernels = kernels_for(p.dtype_of_k(), execution.isa);
    return {.kernels = kernels, .choice = kernels.choice(p), .threads = threads_for(execution)};
}

Step over_queries(const Problem& p) {
    return {.rows_of = RowsOf::queries,
            .batch = p.batch,
            .heads = p.heads,
            .length = p.seqlen_q,
            .all_rows = p.runs() * p.rows_q()};
}

// Rows of a forward task: fewer than share a key block well if threads would go without work. A row's bits do not
// depend on it.
void choose_rows(Step& step, const Plan& plan) {
    const std::int64_t all_rows = step.heads * step.all_rows;
    for (; step.rows > plan.kernels.panel; step.rows /= 2) {
        if (step.rows >= 2 * step.length)
            step.why = kAll;
        else if (plan.threads > 1 && all_rows < plan.kernels.blocks_a_thread * plan.threads * step.rows)
            step.why = kForThreads;
        else
            return;
    }
}

// Keys of backward's tasks. The more keys a task has, the fewer times queries are brought to the products' form and dq
// is fetched; fewer keys where threads would not find work. No bit depends on it: each sum of dq runs over keys in
// order, and those of dk and dv over queries.
void choose_keys(Step& step, const Problem& p, const Plan& plan) {
    constexpr std::int64_t kEnoughTasks = 8, kFewestTasks = 2;        // a thread
    constexpr std::int64_t kMostElements = kBackwardKeys.most * 256;  // of K and V: larger ones would leave the caches
    const Kernels& kernels = plan.kernels;
    const std::int64_t all_keys = step.heads * step.all_rows;
    step.rows = kBackwardKeys.most;
    step.why = kMost;
    for (; step.rows > kBackwardKeys.least; step.rows /= 2) {
        const std::int64_t tasks = step.rows > kernels.fewest_keys ? kEnoughTasks : kFewestTasks;
        if (step.rows >= 2 * step.length)
            step.why = kAll;
        else if (plan.threads > 1 && all_keys < tasks * plan.threads * step.rows)
            step.why = kForThreads;
        else if (step.rows > kernels.key_block && step.rows * (p.head_dim + p.head_dim_v) > kMostElements)
            step.why = "so few that K and V stay in the caches";
        else
            return;
    }
}

// Takes what `flashtile tune` measured for such problems on this CPU.
void choose_measured(Step& step, Pass pass, const Problem& p, const Plan& plan, const RowChoice& choice) {
    const TunedBlocks* tuned = tuned_blocks_for(subject_of(pass, plan.kernels.isa, plan.threads, p));
    if (tuned == nullptr || !choice.allows(tuned->rows)) return;
    step.rows = tuned->rows;
    step.why = tuned->why.c_str();
    step.measured = true;
}

// Key heads whose rows lie side by side are read together, so that memory is read in order: all of them, if their
// queries fit, and in the level-2 cache the tiles of K and V that are being read and asked for. No bit depends on it.
bool heads_fit(const Problem& p, std::int64_t few) {
    constexpr std::int64_t kMostBytes = 8192;  // of a row of all key heads
    const std::int64_t row =
        p.kv_heads * std::max(p.head_dim, p.head_dim_v) * static_cast<std::int64_t>(size_of(p.dtype_of_k()));
    return std::min(few, p.seqlen_q) * p.heads <= kDecodeRows && row <= kMostBytes;
}

// How many splits a task of all key heads takes. Each task makes its rows ready anew, so they are few; but threads that
// are not equally fast share tasks out well where each has many.
std::int64_t splits_of_task(const Problem& p, const DecodePlan& decode, std::int32_t threads) {
    constexpr std::int64_t kTasksAThread = 16;
    if (threads == 1) return decode.splits;
    return std::clamp<std::int64_t>(p.batch * decode.splits / (kTasksAThread * threads), 1, decode.splits);
}

// Sequences with few queries: their keys are divided over threads where sequences and heads are too few.
void plan_decode(const Problem& p, const Operands& x, Plan& plan) {
    constexpr std::int64_t kTasksAThread = 4;
    const Kernels& kernels = plan.kernels;
    DecodePlan& decode = plan.decode;
    const std::int64_t few = kernels.decode_queries(p);
    if ((!p.packed && p.seqlen_q > few) || p.functions != 0 || p.block_q != 0) return;
    decode.queries = few;
    decode.splits = KeySplits::most(p.seqlen_k, {p.num_splits});
    // Rows of one head that lie among those of others are met page by page for all heads: a head's own walk would miss
    // the TLB at every other row, and then again for the next head.
    const bool among_others = p.kv_heads > 1 && x.k.stride_head < x.k.stride_row;
    const bool few_tasks = plan.threads > 1 && p.batch * p.kv_heads < kTasksAThread * plan.threads;
    decode.stored = decode.splits > 1 && (among_others || few_tasks || p.prefix_groups > 0);
    const bool enough = plan.threads == 1 || p.batch * decode.splits >= kTasksAThread * plan.threads;
    if (decode.stored && among_others && p.prefix_groups == 0 && enough && heads_fit(p, few)) {
        decode.key_heads = p.kv_heads;
        decode.task_splits = splits_of_task(p, decode, plan.threads);
    }
    Step step{.kernel = "decode",
              .rows_of = RowsOf::splits,
              .batch = p.batch,
              .heads = p.kv_heads / decode.key_heads,
              .length = decode.stored ? decode.splits : 1,
              .all_rows = p.batch * (decode.stored ? decode.splits : 1),
              .rows = decode.task_splits,
              .why = !decode.stored         ? "all splits of the keys"
                     : p.prefix_groups > 0  ? "a split of keys, which sequences of a prefix share"
                     : decode.key_heads > 1 ? "splits of keys of all heads, whose rows lie side by side"
                     : few_tasks            ? "a split of keys, so that every thread has work"
                                            : "a split of keys, whose heads share pages of memory",
              .Br = std::min(few, p.seqlen_q) * p.group() * decode.key_heads,
              .Bc = KeySplits::kUnit};
    plan.steps.push_back(step);
    plan.scratch = round_up(kernels.decode_scratch(p));
    if (!decode.stored) return;
    const std::int64_t rows = p.runs() * p.rows_q(), most = p.batch * std::min(few, p.seqlen_q);
    decode.slots = rows <= most && p.packed ? 0 : std::min(few, p.seqlen_q);
    plan.shared =
        round_up(static_cast<std::size_t>(std::min(rows, most) * p.heads * decode.splits * kernels.part_floats(p)) *
                 sizeof(float));
    step.kernel = "combine";
    step.heads = p.heads;
    step.length = 1;
    step.all_rows = p.batch;
    step.why = "the parts of a head";
    step.Br = step.Bc = 0;
    plan.steps.push_back(step);
}

// Behind what the plan has of shared memory so far.
void add_block_kinds(const Problem& p, Plan& plan) {
    plan.block_kinds = plan.shared;
    plan.shared += round_up(block_kinds_bytes(p));
}

}  // namespace

RowChoice forward_row_choice(const Plan& plan, const Problem& p, const Operands& x) {
    if (plan.decode.queries != 0 && p.seqlen_q <= plan.decode.queries) return {};
    return {plan.kernels.panel, plan.kernels.forward_rows(p, x)};
}

RowChoice backward_row_choice() {
    return kBackwardKeys;
}

Plan plan_forward(const Problem& p, const Operands& x, const Execution& execution) {
    Plan plan = plan_of(p, execution);
    plan_decode(p, x, plan);
    if (p.rotates_q_aside) {
        plan.rotated_q = plan.shared;
        plan.shared +=
            round_up(static_cast<std::size_t>(p.runs() * p.rows_q() * p.heads * p.head_dim * size_of(p.dtype)));
    }
    if (plan.decode.queries != 0 && p.seqlen_q <= plan.decode.queries) return plan;
    add_block_kinds(p, plan);
    Step step = over_queries(p);
    step.kernel = "forward";
    step.rows = plan.kernels.forward_rows(p, x);
    step.why = kMost;
    choose_rows(step, plan);
    choose_measured(step, Pass::forward, p, plan, forward_row_choice(plan, p, x));
    step.Br = step.rows;
    step.Bc = plan.kernels.forward_keys;
    plan.scratch = std::max(plan.scratch, round_up(plan.kernels.forward_scratch(p, step.rows)));
    plan.steps.push_back(step);
    return plan;
}

namespace {

// The gradients of named tensors. Each part of the places has sums of its own: as many parts as keep many threads busy,
// as there are places for, and as fit a stated memory.
void plan_tensors(const Problem& p, const Operands& x, BackwardPlan& plan) {
    constexpr std::int64_t kMostParts = 64, kMostElements = std::int64_t{1} << 23;  // 64 MiB
    const bool any = std::ranges::any_of(x.dtensors, [](const functions::TensorGradient& to) { return bool(to); });
    if (!any) return;
    for (int t = 0; t < functions::kMostTensors; ++t) {
        if (!x.dtensors[t]) continue;
        std::int64_t elements = 1;
        for (int d = 0; d < x.function_tensors[t].rank; ++d) elements *= x.function_tensors[t].shape[d];
        plan.tensor_elements += elements;
    }
    const std::int64_t panels = p.batch * p.heads * ((p.seqlen_q + plan.kernels.panel - 1) / plan.kernels.panel);
    const std::int64_t fitting = kMostElements / std::max<std::int64_t>(plan.tensor_elements, 1);
    plan.tensor_parts = std::max<std::int64_t>(1, std::min({kMostParts, panels, fitting}));
    plan.tensor_bytes = round_up(static_cast<std::size_t>(plan.tensor_parts * plan.tensor_elements) * sizeof(double));
    plan.scratch = round_up(plan.kernels.tensor_scratch(p));
    plan.steps.push_back({.kernel = "backward_tensors",
                          .run = plan.kernels.backward_tensors,
                          .rows_of = RowsOf::parts,
                          .batch = 1,
                          .heads = plan.tensor_parts,
                          .length = 1,
                          .all_rows = 1,
                          .why = "a fixed part of all places",
                          .Br = plan.kernels.panel,
                          .Bc = plan.kernels.key_block});
    plan.steps.push_back({.kernel = "finish_tensor",
                          .run = plan.kernels.finish_tensor,
                          .rows_of = RowsOf::tensors,
                          .batch = 1,
                          .heads = functions::kMostTensors,
                          .length = 1,
                          .all_rows = 1,
                          .why = "all parts of a tensor"});
}

}  // namespace

BackwardPlan plan_backward(const Problem& p, const Operands& x, const Execution& execution) {
    BackwardPlan plan{plan_of(p, execution)};
    const Kernels& kernels = plan.kernels;

    Step queries = over_queries(p);
    queries.rows = kernels.query_block;
    queries.why = "the least Br of backward_keys";
    // Rows of different heads often share a page, so these two kernels take all heads of a block together.
    queries.heads_together = p.batch * p.heads;
    Step keys{.kernel = "backward_keys",
              .run = kernels.backward_keys,
              .rows_of = RowsOf::keys,
              .batch = p.batch,
              .heads = p.kv_heads,
              .length = p.seqlen_k,
              .all_rows = p.runs() * p.rows_k(),
              .Br = plan.choice.backward_queries,
              // Enough that threads do not wait for each other.
              .heads_together = plan.threads == 1 ? 1 : 2 * plan.threads};
    choose_keys(keys, p, plan);
    choose_measured(keys, Pass::backward, p, plan, kBackwardKeys);
    keys.Bc = std::min(keys.rows, kernels.key_block);

    queries.kernel = "backward_prepare";
    queries.run = kernels.backward_prepare;
    plan.steps.push_back(queries);
    plan.steps.push_back(keys);
    queries.kernel = "backward_finish";
    queries.run = kernels.backward_finish;
    plan.steps.push_back(queries);
    if (x.dsinks)
        plan.steps.push_back({.kernel = "backward_sinks",
                              .run = kernels.backward_sinks,
                              .rows_of = RowsOf::heads,
                              .batch = 1,
                              .heads = p.heads,
                              .length = 1,
                              .all_rows = 1,
                              .why = "all queries of a head"});
    if (x.dbias)
        plan.steps.push_back({.kernel = "backward_bias",
                              .run = kernels.backward_bias,
                              .rows_of = RowsOf::dbias,
                              .batch = x.bias_batch,
                              .heads = x.bias_heads,
                              .length = x.bias_rows,
                              .all_rows = x.bias_batch * x.bias_rows,
                              .rows = kernels.panel,
                              .why = "one panel",
                              .Br = kernels.panel,
                              .Bc = kernels.key_block});

    plan_tensors(p, x, plan);

    plan.key_block = keys.rows;
    plan.dq_rows = (p.head_dim + kernels.dq_rows - 1) / kernels.dq_rows * kernels.dq_rows;
    plan.panels = p.units(kernels.panel);  // Head::first_unit
    plan.query_blocks = p.units(kernels.query_block);
    const auto rows = static_cast<std::size_t>(p.heads * plan.panels * kernels.panel);
    plan.rows_bytes = round_up(rows * sizeof(float));
    plan.dq_bytes = round_up(rows * static_cast<std::size_t>(plan.dq_rows) * sizeof(float));
    plan.turn_bytes = round_up(static_cast<std::size_t>(p.heads * plan.query_blocks) * sizeof(std::uint32_t));
    plan.shared = 2 * plan.rows_bytes + plan.dq_bytes + plan.turn_bytes + plan.tensor_bytes;
    add_block_kinds(p, plan);
    plan.scratch = std::max(plan.scratch, round_up(kernels.backward_scratch(p, plan.key_block)));
    return plan;
}

}  // namespace flashtile::cpu
