// moves.cpp: see moves.h. Tasks run one after the other in the order of their tickets.
#include "cpu/counted/moves.h"

#include <vector>

#include "cpu/counted/counted.h"
#include "cpu/schedule.h"

namespace flashtile::counting {
namespace {

using cpu::BackwardKernel;
using cpu::BackwardState;
using cpu::Block;
using cpu::Kernels;

thread_local Moves* counting = nullptr;

struct alignas(64) Line {
    std::byte bytes[64];
};
std::vector<Line> lines(std::size_t bytes) {
    return std::vector<Line>(bytes / sizeof(Line) + 1);
}

std::vector<float> floats(std::int64_t count) {
    return std::vector<float>(static_cast<std::size_t>(count));
}

Problem problem_of(const CountedPass& c) {
    return {.dtype = c.dtype,
            .batch = 1,
            .heads = c.group,
            .kv_heads = 1,
            .seqlen_q = c.N,
            .seqlen_k = c.N,
            .head_dim = c.d,
            .head_dim_v = c.d,
            .scale = 1.0f,
            .window_right = c.causal ? 0 : -1};
}

// The tensors of a call. Nobody computes with their numbers, so those that are read share memory, and so do those that
// are written, and all heads.
class Tensors {
public:
    explicit Tensors(const CountedPass& c) : read_(floats(c.N * c.d)), written_(read_), lse_(floats(c.N)) {
        const Operand read = {read_.data(), c.dtype, 0, c.d, 0}, written = {written_.data(), c.dtype, 0, c.d, 0};
        operands_.q = operands_.k = operands_.v = operands_.dout = read;
        operands_.out = operands_.dq = operands_.dk = operands_.dv = written;
        operands_.lse = {lse_.data(), DType::fp32, 0, 1, 0};
    }
    const Operands& operands() const { return operands_; }

private:
    std::vector<float> read_, written_, lse_;
    Operands operands_;
};

template <class Run>
void each_task(std::int64_t heads, std::int64_t length, std::int64_t rows, Run run) {
    const cpu::Schedule schedule(1, heads, length, {}, rows);
    for (std::int64_t ticket = 0; ticket < schedule.tickets(); ++ticket) run(schedule.by_turns(ticket, 1));
}

void forward(const Kernels& kernels, const CountedPass& c, const Problem& p, const Operands& x, Moves& moves) {
    moves.scratch = kernels.forward_scratch(p, c.task_rows);
    std::vector<Line> scratch = lines(moves.scratch);
    cpu::HeldKeys held;
    each_task(p.heads, c.N, c.task_rows,
              [&](const Block& block) { kernels.forward(p, x, block, held, scratch.data()->bytes); });
}

void backward(const Kernels& kernels, const CountedPass& c, const Problem& p, const Operands& x, Moves& moves) {
    const std::int64_t panels = p.units(kernels.panel), query_blocks = p.units(kernels.query_block);
    const std::int64_t rows = p.heads * panels * kernels.panel;
    std::vector<float> lse = floats(rows), D = floats(rows), dq = floats(rows * p.head_dim);
    std::vector<std::uint32_t> turn(static_cast<std::size_t>(p.heads * query_blocks));
    const BackwardState state = {.lse = lse.data(),
                                 .D = D.data(),
                                 .dq = dq.data(),
                                 .turn = turn.data(),
                                 .dq_rows = p.head_dim,
                                 .panels = panels,
                                 .query_blocks = query_blocks,
                                 .key_block = c.task_rows,
                                 .tensor_sums = nullptr,
                                 .tensor_parts = 0,
                                 .tensor_elements = 0};
    moves.scratch = kernels.backward_scratch(p, c.task_rows);
    std::vector<Line> scratch = lines(moves.scratch);
    const auto tasks = [&](BackwardKernel kernel, std::int64_t heads, std::int64_t of_a_task) {
        each_task(heads, c.N, of_a_task,
                  [&](const Block& block) { kernel(p, x, state, block, scratch.data()->bytes); });
    };
    tasks(kernels.backward_prepare, p.heads, kernels.query_block);
    tasks(kernels.backward_keys, p.kv_heads, c.task_rows);
    tasks(kernels.backward_finish, p.heads, kernels.query_block);
}

}  // namespace

void count_load(Moved what, std::int64_t elements, std::int64_t element_bytes) {
    (*counting)[what].add({elements, 0, elements * element_bytes}, 1);
}

void count_store(Moved what, std::int64_t elements, std::int64_t element_bytes) {
    (*counting)[what].add({0, elements, elements * element_bytes}, 1);
}

Moves count_moves(const CountedPass& c) {
    Moves moves;
    counting = &moves;
    const Problem p = problem_of(c);
    const Tensors tensors(c);
    (c.pass == Pass::forward ? forward : backward)(cpu::counted_kernels(), c, p, tensors.operands(), moves);
    counting = nullptr;
    return moves;
}

}  // namespace flashtile::counting
