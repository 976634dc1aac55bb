// backend.cpp: runs a problem on the CPU as its plan says: hands out scratch memory, and calls the kernels for tasks
// that threads share.
#include "cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/per_thread.h"
#include "cpu/block_kinds.h"
#include "cpu/decode_tasks.h"
#include "cpu/features.h"
#include "cpu/plan.h"
#include "cpu/plan_report.h"
#include "cpu/quantize.h"
#include "cpu/schedule.h"
#include "cpu/shares.h"
#include "cpu/threads.h"
#include "shared/philox.h"

namespace flashtile::cpu {
namespace {

constexpr std::size_t kLine = 64;

// A call's memory: what the caller brought, or what this thread has kept from an earlier call, unless it is large. A
// call takes the kept memory away and brings it back, since an executor may run another call on this thread meanwhile.
class Workspace {
public:
    Workspace(const Execution& execution, std::size_t bytes) {
        if (execution.workspace != nullptr) {
            if (execution.workspace_size < bytes)
                throw Error(FLASHTILE_INVALID_ARGUMENT,
                            "workspace_size is " + std::to_string(execution.workspace_size) + ", and this call needs " +
                                std::to_string(bytes) + " bytes");
            base_ = static_cast<std::byte*>(execution.workspace);
            return;
        }
        Owned& kept = PerThread<Owned>::get();
        if (bytes <= kept.size)
            own_ = std::exchange(kept, {});
        else
            own_ = {Memory(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLine}))), bytes};
        base_ = own_.memory.get();
    }
    ~Workspace() {
        if (own_.size == 0 || own_.size > kMostKept) return;
        if (Owned& kept = PerThread<Owned>::get(); kept.size < own_.size) kept = std::move(own_);
    }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    std::byte* base() const { return base_; }

private:
    static constexpr std::size_t kMostKept = std::size_t{16} << 20;
    struct Delete {
        void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kLine}); }
    };
    using Memory = std::unique_ptr<std::byte, Delete>;
    struct Owned {
        Memory memory;
        std::size_t size = 0;
    };

    std::byte* base_ = nullptr;
    Owned own_;
};

Schedule schedule_of(const Step& step, const Operands& x) {
    Lengths lengths;
    if (step.rows_of == RowsOf::queries) lengths = x.cu_seqlens_q;
    if (step.rows_of == RowsOf::keys) lengths = x.cu_seqlens_k;
    return Schedule(step.batch, step.heads, step.length, lengths, step.rows);
}

std::string ran(const Kernels& kernels, const char* pass, std::int32_t threads) {
    return std::string("cpu ") + isa_name(kernels.isa) + " " + pass + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
}

// Runs run(first, end) on ranges of equal items, each of which reads so many elements.
template <class Run>
void by_items(const Execution& execution, std::int32_t threads, std::int64_t items, std::int64_t elements, Run run) {
    constexpr std::int64_t kElements = std::int64_t{1} << 15;  // that a task reads, unless an item has more
    const std::int64_t together = std::max<std::int64_t>(1, kElements / elements);
    run_tasks(execution, threads, (items + together - 1) / together, [&](std::int64_t ticket, std::int32_t) {
        run(ticket * together, std::min((ticket + 1) * together, items));
    });
}

void append(const Kernels& kernels, const AppendProblem& p, const AppendOperands& x, const Execution& execution,
            std::int32_t threads) {
    by_items(execution, threads, p.items(), p.head_dim + p.head_dim_v,
             [&](std::int64_t first, std::int64_t end) { kernels.append_kv(p, x, first, end); });
}

// What forward says is to be appended. Returns the operands of the attention that follows: q is the rotated one.
Operands append_first(const Plan& plan, const Problem& p, const Operands& x, const Execution& execution,
                      std::byte* base) {
    Operands after = x;
    Operand& rotated = after.append.q_out;
    if (p.rotates_q_aside) {
        const std::int64_t row = p.heads * p.head_dim;
        rotated = {base + plan.rotated_q, p.dtype, p.packed ? 0 : p.seqlen_q * row, row, p.head_dim};
    }
    append(plan.kernels, p.append, after.append, execution, plan.threads);
    if (rotated) after.q = rotated;
    return after;
}

// The operands, with what the user's lists say of each block where there are any, in `listed`.
const Operands& with_block_kinds(const Plan& plan, const Problem& p, const Operands& x, std::byte* base,
                                 std::optional<Operands>& listed) {
    if (p.block_q == 0) return x;
    auto* const kinds = reinterpret_cast<unsigned char*>(base + plan.block_kinds);
    write_block_kinds(p, x, kinds);
    listed.emplace(x).block_kinds = kinds;
    return *listed;
}

// The sequences with few queries: their splits of keys, then what several tasks made of a row's.
void decode(const Plan& plan, const Problem& p, const Operands& x, const Execution& execution, std::byte* parts,
            std::byte* scratch) {
    const DecodeState state{plan.decode.stored ? reinterpret_cast<float*>(parts) : nullptr, plan.decode.splits,
                            plan.decode.slots, plan.decode.queries};
    const DecodeTasks tasks(p, x, plan.decode);
    Shares shares(tasks.count(), plan.threads);
    run_tasks(execution, plan.threads, shares.count(), [&](std::int64_t share, std::int32_t slot) {
        for (std::int64_t ticket; (ticket = shares.next(share)) >= 0;)
            plan.kernels.decode(p, x, state, tasks[ticket], scratch + static_cast<std::size_t>(slot) * plan.scratch);
    });
    if (!plan.decode.stored) return;
    run_tasks(execution, plan.threads, tasks.sequences() * p.heads, [&](std::int64_t ticket, std::int32_t slot) {
        plan.kernels.combine(p, x, state, tasks.sequence(ticket / p.heads), ticket % p.heads,
                             scratch + static_cast<std::size_t>(slot) * plan.scratch);
    });
}

// Forward, as it is planned.
void attend(const Plan& plan, const Problem& p, const Operands& x, const Execution& execution, std::byte* base) {
    std::byte* const scratch = base + plan.shared;
    if (plan.decode.queries != 0) decode(plan, p, x, execution, base, scratch);
    const Step& last = plan.steps[plan.steps.size() - 1];
    if (last.rows_of != RowsOf::queries) return;
    const Schedule queries(last.batch, last.heads, last.length, x.cu_seqlens_q, last.rows, plan.decode.queries + 1);
    Shares shares(queries.tickets(), plan.threads);
    run_tasks(execution, plan.threads, shares.count(), [&](std::int64_t share, std::int32_t slot) {
        HeldKeys held;
        for (std::int64_t ticket; (ticket = shares.next(share)) >= 0;)
            plan.kernels.forward(p, x, queries.by_head(ticket), held,
                                 scratch + static_cast<std::size_t>(slot) * plan.scratch);
    });
}

class CpuBackend final : public Backend {
public:
    const char* name() const override { return "cpu"; }
    std::int32_t device_type() const override { return FLASHTILE_CPU; }

    std::size_t forward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        return plan_forward(p, x, execution).workspace();
    }
    std::size_t backward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        return plan_backward(p, x, execution).workspace();
    }

    std::string forward(const Problem& p, const Operands& given, const Execution& execution) const override {
        const Plan plan = plan_forward(p, given, execution);
        const Workspace workspace(execution, plan.workspace());
        std::optional<Operands> listed;
        const Operands& x = with_block_kinds(plan, p, given, workspace.base(), listed);
        if (p.appends)
            attend(plan, p, append_first(plan, p, x, execution, workspace.base()), execution, workspace.base());
        else
            attend(plan, p, x, execution, workspace.base());
        return ran(plan.kernels, "forward", plan.threads);
    }

    std::string backward(const Problem& p, const Operands& given, const Execution& execution) const override {
        const BackwardPlan plan = plan_backward(p, given, execution);
        const Workspace workspace(execution, plan.workspace());
        std::optional<Operands> listed;
        const Operands& x = with_block_kinds(plan, p, given, workspace.base(), listed);
        std::byte* next = workspace.base();
        const auto take = [&](std::size_t bytes) { return std::exchange(next, next + bytes); };
        const BackwardState state{
            .lse = reinterpret_cast<float*>(take(plan.rows_bytes)),
            .D = reinterpret_cast<float*>(take(plan.rows_bytes)),
            .dq = reinterpret_cast<float*>(take(plan.dq_bytes)),
            .turn = reinterpret_cast<std::uint32_t*>(take(plan.turn_bytes)),
            .dq_rows = plan.dq_rows,
            .panels = plan.panels,
            .query_blocks = plan.query_blocks,
            .key_block = plan.key_block,
            .tensor_sums = reinterpret_cast<double*>(take(plan.tensor_bytes)),
            .tensor_parts = plan.tensor_parts,
            .tensor_elements = plan.tensor_elements,
        };
        std::memset(state.turn, 0, plan.turn_bytes);

        for (const Step& step : plan.steps) {
            const Schedule schedule = schedule_of(step, x);
            run_tasks(execution, plan.threads, schedule.tickets(), [&](std::int64_t ticket, std::int32_t slot) {
                step.run(p, x, state, schedule.by_turns(ticket, step.heads_together),
                         workspace.base() + plan.shared + static_cast<std::size_t>(slot) * plan.scratch);
            });
        }
        return ran(plan.kernels, "backward", plan.threads);
    }

    // Nothing is compiled at run time here.
    std::vector<Preparation> preparations(Pass pass, const Problem& p, const Operands& x, const Execution& execution,
                                          bool) const override {
        static_cast<void>(would_run(pass, p, x, execution));
        return {};
    }
    std::string would_run(Pass pass, const Problem& p, const Operands&, const Execution& execution) const override {
        return ran(kernels_for(p.dtype_of_k(), execution.isa), pass == Pass::forward ? "forward" : "backward",
                   threads_for(execution));
    }

    std::string plan_report(const Problem& p, const Operands& x, const Execution& execution,
                            const PlanWishes& wishes) const override {
        if (wishes.device_name != nullptr)
            throw Error(FLASHTILE_INVALID_ARGUMENT, std::string("device_name is '") + wishes.device_name +
                                                        "', allowed for tensors on the CPU is NULL");
        return cpu::plan_report(p, x, execution);
    }

    std::string merge(const MergeProblem& p, const MergeOperands& x, const Execution& execution) const override {
        const std::int64_t read = p.head_dim * std::max<std::int64_t>(p.parts, 1);
        const Kernels& kernels = kernels_for(p.dtype, execution.isa);
        const std::int32_t threads = threads_for(execution);
        by_items(execution, threads, p.rows(), read,
                 [&](std::int64_t first, std::int64_t end) { kernels.merge(p, x, first, end); });
        return ran(kernels, "merge", threads);
    }

    std::string append_kv(const AppendProblem& p, const AppendOperands& x, const Execution& execution) const override {
        const Kernels& kernels = kernels_for(p.dtype, execution.isa);
        const std::int32_t threads = threads_for(execution);
        append(kernels, p, x, execution, threads);
        return ran(kernels, "append_kv", threads);
    }

    std::string quantize(const QuantizeProblem& p, const QuantizeOperands& x,
                         const Execution& execution) const override {
        const Kernels& kernels = kernels_for(p.dtype, execution.isa);
        const std::int32_t threads = threads_for(execution);
        cpu::quantize(kernels, p, x, execution, threads);
        return ran(kernels, "quantize", threads);
    }
    std::string dequantize(const QuantizeProblem& p, const QuantizeOperands& x,
                           const Execution& execution) const override {
        const Kernels& kernels = kernels_for(p.dtype, execution.isa);
        const std::int32_t threads = threads_for(execution);
        cpu::dequantize(kernels, p, x, execution, threads);
        return ran(kernels, "dequantize", threads);
    }

    void dropout_mask(const Problem& p, const Operands& x, const Execution&) const override {
        if (p.seqlen_q == 0 || p.seqlen_k == 0) return;  // the other sizes need not be what memory could hold
        const std::uint64_t seed = x.seed_ptr != nullptr ? *x.seed_ptr : x.seed;
        const std::uint64_t offset = x.offset_ptr != nullptr ? *x.offset_ptr : x.offset;
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t origin_i = p.origins_i ? x.origins_i[b] : p.origin_i,
                               origin_j = p.origins_j ? x.origins_j[b] : p.origin_j;
            for (std::int64_t h = 0; h < p.heads; ++h) {
                const auto dropout = Dropout::make(seed, offset, static_cast<unsigned>(p.origin_b + b),
                                                   static_cast<unsigned>(p.origin_h + h), p.dropout_threshold);
                for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
                    auto* row = static_cast<std::uint8_t*>(x.mask.data) + b * x.mask.stride_batch +
                                h * x.mask.stride_head + i * x.mask.stride_row;
                    for (std::int64_t j = 0; j < p.seqlen_k; ++j)
                        row[j] =
                            dropout.keeps(static_cast<unsigned>(origin_i + i), static_cast<unsigned>(origin_j + j));
                }
            }
        }
    }

    void read(void* to, const void* from, std::size_t bytes, const Execution&) const override {
        std::memcpy(to, from, bytes);
    }
};

}  // namespace

const Backend& backend() {
    static constexpr CpuBackend instance;
    return instance;
}

}  // namespace flashtile::cpu
