// backend.cpp: runs a problem on the CPU: picks the instruction set, splits rows and heads over threads, hands out
// scratch memory, and calls the kernels.
#include "cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/per_thread.h"
#include "cpu/features.h"
#include "cpu/schedule.h"
#include "cpu/shares.h"
#include "cpu/threads.h"
#include "shared/philox.h"

namespace flashtile::cpu {
namespace {

constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}

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

// Rows of a forward block: fewer than share a key block well if threads would go without work. A row's bits do not
// depend on it.
std::int64_t forward_rows(const Problem& p, const Operands& x, const Kernels& kernels, std::int32_t threads) {
    const std::int64_t all_rows = p.heads * p.rows_q() * p.runs();
    std::int64_t rows = kernels.forward_rows(p, x);
    while (rows > kernels.panel &&
           (rows >= 2 * p.seqlen_q || (threads > 1 && all_rows < kernels.blocks_a_thread * threads * rows)))
        rows /= 2;
    return rows;
}

struct ForwardPlan {
    const Kernels& kernels;
    std::int32_t threads;
    std::int64_t rows;
    std::size_t scratch;  // a thread

    ForwardPlan(const Problem& p, const Operands& x, const Execution& execution)
        : kernels(kernels_for(p.dtype, execution.isa)),
          threads(threads_for(execution)),
          rows(forward_rows(p, x, kernels, threads)),
          scratch(round_up(kernels.forward_scratch(p, rows))) {}

    std::size_t workspace() const { return scratch * static_cast<std::size_t>(threads); }
};

// Queries and keys of backward's tasks. The more keys a task has, the fewer times queries are brought to the products'
// form and dq is fetched; fewer keys where threads would not find work. No bit depends on it: each sum of dq runs over
// keys in order, and those of dk and dv over queries.
struct BackwardPlan {
    static constexpr std::int64_t kEnoughTasks = 8, kFewestTasks = 2;  // a thread
    static constexpr std::int64_t kMostKeys = 1024;
    static constexpr std::int64_t kMostElements = kMostKeys * 256;  // of K and V: larger ones would leave the caches

    const Kernels& kernels;
    std::int32_t threads;
    std::int64_t key_block;
    std::int64_t dq_rows;
    std::int64_t panels, query_blocks;  // a head, over all sequences
    std::int64_t heads_together;        // heads at work at a time: enough that threads do not wait for each other
    std::size_t scratch;                // a thread
    std::size_t rows_bytes, dq_bytes, turn_bytes;

    BackwardPlan(const Problem& p, const Execution& execution)
        : kernels(kernels_for(p.dtype, execution.isa)), threads(threads_for(execution)), key_block(kMostKeys) {
        const std::int64_t all_keys = p.kv_heads * p.rows_k() * p.runs();
        const auto too_many = [&](std::int64_t keys) {
            const std::int64_t tasks = keys > kernels.fewest_keys ? kEnoughTasks : kFewestTasks;
            return keys >= 2 * p.seqlen_k || (threads > 1 && all_keys < tasks * threads * keys) ||
                   (keys > kernels.key_block && keys * (p.head_dim + p.head_dim_v) > kMostElements);
        };
        while (key_block > 32 && too_many(key_block)) key_block /= 2;
        dq_rows = (p.head_dim + kernels.dq_rows - 1) / kernels.dq_rows * kernels.dq_rows;
        panels = p.units(kernels.panel);  // Head::first_unit
        query_blocks = p.units(kernels.query_block);
        heads_together = threads == 1 ? 1 : 2 * threads;
        scratch = round_up(kernels.backward_scratch(p, key_block));
        const auto rows = static_cast<std::size_t>(p.heads * panels * kernels.panel);
        rows_bytes = round_up(rows * sizeof(float));
        dq_bytes = round_up(rows * static_cast<std::size_t>(dq_rows) * sizeof(float));
        turn_bytes = round_up(static_cast<std::size_t>(p.heads * query_blocks) * sizeof(std::uint32_t));
    }

    std::size_t workspace() const {
        return 2 * rows_bytes + dq_bytes + turn_bytes + scratch * static_cast<std::size_t>(threads);
    }
};

std::string ran(const Kernels& kernels, const char* pass, std::int32_t threads) {
    return std::string("cpu ") + isa_name(kernels.isa) + " " + pass + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
}

class CpuBackend final : public Backend {
public:
    const char* name() const override { return "cpu"; }
    std::int32_t device_type() const override { return FLASHTILE_CPU; }

    std::size_t forward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        return ForwardPlan(p, x, execution).workspace();
    }
    std::size_t backward_workspace(const Problem& p, const Operands&, const Execution& execution) const override {
        return BackwardPlan(p, execution).workspace();
    }

    std::string forward(const Problem& p, const Operands& x, const Execution& execution) const override {
        const ForwardPlan plan(p, x, execution);
        const Workspace workspace(execution, plan.workspace());
        const Schedule queries(p.batch, p.heads, p.seqlen_q, x.cu_seqlens_q, plan.rows);
        Shares shares(queries.tickets(), plan.threads);
        run_tasks(execution, plan.threads, shares.count(), [&](std::int64_t share, std::int32_t slot) {
            HeldKeys held;
            std::byte* const scratch = workspace.base() + static_cast<std::size_t>(slot) * plan.scratch;
            for (std::int64_t ticket; (ticket = shares.next(share)) >= 0;)
                plan.kernels.forward(p, x, queries.by_head(ticket), held, scratch);
        });
        return ran(plan.kernels, "forward", plan.threads);
    }

    std::string backward(const Problem& p, const Operands& x, const Execution& execution) const override {
        const BackwardPlan plan(p, execution);
        const Kernels& kernels = plan.kernels;
        const Workspace workspace(execution, plan.workspace());
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
        };
        std::memset(state.turn, 0, plan.turn_bytes);

        const auto each = [&](const Schedule& schedule, std::int64_t heads_together, auto kernel) {
            run_tasks(execution, plan.threads, schedule.tickets(), [&](std::int64_t ticket, std::int32_t slot) {
                kernel(p, x, state, schedule.by_turns(ticket, heads_together),
                       next + static_cast<std::size_t>(slot) * plan.scratch);
            });
        };
        const Schedule queries(p.batch, p.heads, p.seqlen_q, x.cu_seqlens_q, kernels.query_block);
        // Rows of different heads often share a page, so these two passes take all heads of a block together.
        const std::int64_t all = p.batch * p.heads;
        each(queries, all, kernels.backward_prepare);
        each(Schedule(p.batch, p.kv_heads, p.seqlen_k, x.cu_seqlens_k, plan.key_block), plan.heads_together,
             kernels.backward_keys);
        each(queries, all, kernels.backward_finish);
        if (x.dbias)
            each(Schedule(x.bias_batch, x.bias_heads, x.bias_rows, {}, kernels.panel), 1, kernels.backward_bias);
        return ran(kernels, "backward", plan.threads);
    }

    std::string would_run(Pass pass, const Problem& p, const Operands&, const Execution& execution) const override {
        return ran(kernels_for(p.dtype, execution.isa), pass == Pass::forward ? "forward" : "backward",
                   threads_for(execution));
    }

    void dropout_mask(const Problem& p, const Operands& x, const Execution&) const override {
        if (p.seqlen_q == 0 || p.seqlen_k == 0) return;  // the other sizes need not be what memory could hold
        const std::uint64_t seed = x.seed_ptr != nullptr ? *x.seed_ptr : x.seed;
        const std::uint64_t offset = x.offset_ptr != nullptr ? *x.offset_ptr : x.offset;
        for (std::int64_t b = 0; b < p.batch; ++b)
            for (std::int64_t h = 0; h < p.heads; ++h) {
                const auto dropout = Dropout::make(seed, offset, static_cast<unsigned>(b), static_cast<unsigned>(h),
                                                   p.dropout_threshold);
                for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
                    auto* row = static_cast<std::uint8_t*>(x.mask.data) + b * x.mask.stride_batch +
                                h * x.mask.stride_head + i * x.mask.stride_row;
                    for (std::int64_t j = 0; j < p.seqlen_k; ++j)
                        row[j] = dropout.keeps(static_cast<unsigned>(i), static_cast<unsigned>(j));
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
