// plan.h: how the CPU runs a problem, as data: the kernels of an instruction set, blocks of Br queries by Bc keys, the
// tasks that threads share, and the workspace. The backend runs what a plan holds, and plan_report.h prints it. A plan
// reads no tensor's memory, the lengths of packed sequences included. Every call makes one, so it allocates nothing and
// its reasons are fixed texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/fixed_list.h"
#include "cpu/kernels.h"

namespace flashtile::cpu {

// heads, tensors: a task has all of one; parts: of all places; splits: of keys
enum class RowsOf { queries, keys, dbias, heads, parts, tensors, splits };

// One kernel's part of a pass. A task is a block of `rows` rows of one (sequence, head).
struct Step {
    const char* kernel = "";       // as Kernels names it
    BackwardKernel run = nullptr;  // null in forward, whose kernel also takes the keys that it holds
    RowsOf rows_of = RowsOf::queries;
    std::int64_t batch = 0, heads = 0;
    std::int64_t length = 0;    // of a sequence; of packed ones the longest
    std::int64_t all_rows = 0;  // of all sequences
    std::int64_t rows = 1;
    const char* why = "";             // so many rows
    bool measured = false;            // by `flashtile tune`
    std::int64_t Br = 0, Bc = 0;      // 0: the kernel multiplies no tile
    std::int64_t heads_together = 1;  // backward: heads at work at a time

    // The number of tasks. Lengths of packed sequences lie in memory: there it is an upper bound.
    std::int64_t most_tasks() const {
        return heads * std::min(batch * ((length + rows - 1) / rows), all_rows / rows + batch);
    }
};

// Forward of sequences with few queries.
struct DecodePlan {
    std::int64_t queries = 0;      // sequences with more are not decoded; 0: none is
    std::int64_t splits = 1;       // the most of a sequence
    bool stored = false;           // each task has a part of a sequence's keys; else all
    std::int64_t slots = 0;        // a sequence's, in stored parts; 0: they are q's rows
    std::int64_t key_heads = 1;    // of a task: all or one
    std::int64_t task_splits = 1;  // of a task, where parts are stored
};

struct Plan {
    const Kernels& kernels;
    Choice choice;
    std::int32_t threads = 1;
    FixedList<Step, 7> steps{};   // in their order
    std::size_t shared = 0;       // bytes of workspace that threads share
    std::size_t rotated_q = 0;    // where rotated queries start in them, if Problem::rotates_q_aside
    std::size_t block_kinds = 0;  // and where the kinds of the user's blocks do, if Problem::block_q is not 0
    std::size_t scratch = 0;      // bytes of each thread
    DecodePlan decode{};

    std::size_t workspace() const { return shared + scratch * static_cast<std::size_t>(threads); }
};

// With the sizes of BackwardState, and bytes of what it points to: lse and D, dq, turn.
struct BackwardPlan : Plan {
    std::int64_t dq_rows = 0, panels = 0, query_blocks = 0, key_block = 0;
    std::size_t rows_bytes = 0, dq_bytes = 0, turn_bytes = 0, tensor_bytes = 0;
    std::int64_t tensor_parts = 0, tensor_elements = 0;
};

// Rows that a task may have: powers of two times `least`. least is 0 where nobody can choose.
struct RowChoice {
    std::int64_t least = 0, most = 0;

    bool allows(std::int64_t rows) const {
        if (least == 0 || rows < least || rows > most || rows % least != 0) return false;
        const std::int64_t times = rows / least;
        return (times & (times - 1)) == 0;
    }
};

// Of forward's queries, where there are more than decode takes, and of backward's keys.
RowChoice forward_row_choice(const Plan& plan, const Problem& problem, const Operands& operands);
RowChoice backward_row_choice();

// Both throw UNSUPPORTED where a forced instruction set cannot run here.
Plan plan_forward(const Problem& problem, const Operands& operands, const Execution& execution);
BackwardPlan plan_backward(const Problem& problem, const Operands& operands, const Execution& execution);

}  // namespace flashtile::cpu
