// backward_tensors.h: the gradients of the tensors that a score function names: of element e the sum over all places
// (b, h, i, j) of dS d(score) / d(e), where dS is that of what the function gives. Places are added up in a fixed
// number of parts, each in its order and in fp64, and the parts in theirs: the same bits at any thread count.
#pragma once

#include "cpu/kernels/gradient_tile.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Elements of a named tensor.
inline int64_t elements_of(const functions::FunctionTensor& tensor) {
    int64_t elements = 1;
    for (int d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
    return elements;
}

template <class Math>
class BackwardTensors {
    using Scalar = typename Math::Scalar;
    using Tile = GradientTile<Math>;
    static constexpr int64_t Bc = kBackwardKeys;

public:
    BackwardTensors(const Problem& problem, const Operands& operands, const cpu::BackwardState& state,
                    std::byte* scratch)
        : problem_(problem), operands_(operands), state_(state), arena_(scratch), tile_(problem, arena_, Bc) {
        q_ = arena_.take<Scalar>(packed_panel_size<Math>(problem.head_dim));
        dout_ = arena_.take<Scalar>(packed_panel_size<Math>(problem.head_dim_v));
        p_ = arena_.take<float>(Bc * kPanel);
        ds_ = arena_.take<float>(Bc * kPanel);
        function_ = arena_.take<int64_t>(functions::view_of(problem.functions, nullptr).by_loads.buffers * kElements);
    }

    static std::size_t scratch_bytes(const Problem& problem) {
        const Operands none{};
        const BackwardTensors layout(problem, none, cpu::BackwardState{}, nullptr);
        return static_cast<std::size_t>(layout.arena_.used(nullptr));
    }

    // Part n of all places, which are counted over sequences, heads and panels of queries.
    void run(int64_t n) {
        double* sums = state_.tensor_sums + n * state_.tensor_elements;
        memset(sums, 0, static_cast<size_t>(state_.tensor_elements) * sizeof(double));
        for (int t = 0; t < functions::kMostTensors; ++t) {
            sums_[t] = sums;
            if (operands_.dtensors[t]) sums += elements_of(operands_.function_tensors[t]);
        }
        const int64_t panels = (problem_.seqlen_q + kPanel - 1) / kPanel;
        const int64_t all = problem_.batch * problem_.heads * panels;
        const int64_t end = all * (n + 1) / state_.tensor_parts;
        for (int64_t at = all * n / state_.tensor_parts; at < end;) {
            const int64_t head = at / panels, first = at % panels, last = lesser(panels, first + end - at);
            add(head / problem_.heads, head % problem_.heads, first * kPanel, last * kPanel);
            at += last - first;
        }
    }

private:
    void add(int64_t b, int64_t h, int64_t i_first, int64_t i_end) {
        const Head head = make_head(problem_, operands_, b, h);
        i_end = lesser(i_end, head.seqlen_q);
        for (int64_t j0 = 0; j0 < head.seqlen_k && i_first < i_end; j0 += Bc) {
            const int64_t j1 = lesser(j0 + Bc, head.seqlen_k);
            tile_.load_keys(head, j0, j1);
            for (int64_t i0 = i_first; i0 < i_end; i0 += kPanel) {
                const auto queries = tile_.load_queries(head, state_, h, i0, q_, dout_);
                if (head.band.first_key(i0) >= j1 || head.band.end_key(i0 + queries.count - 1, head.seqlen_k) <= j0)
                    continue;
                const functions::Visible shown = head.shown(i0, i0 + queries.count, j0, j1);
                if (shown == functions::Visible::none) continue;
                tile_.compute(head, queries, j0, j1, shown, nullptr, {p_, ds_, kPanel, DerivativeBy::function});
                if (head.narrow_ints)
                    add_tile<int32_t>(head, i0, j0, j1 - j0);
                else
                    add_tile<int64_t>(head, i0, j0, j1 - j0);
            }
        }
    }

    // A place that sees nothing has dS = 0, whatever the function's derivative is there.
    template <class Int>
    void add_tile(const Head& head, int64_t i0, int64_t j0, int64_t keys) {
        FunctionTile<Int> function(head, head.functions.by_loads, tile_.given_scores(), i0, j0, keys, function_);
        for (int64_t j = 0; j < keys; j += FunctionTile<Int>::kRows) {
            function.evaluate(j);
            const float* ds = ds_ + j * kPanel;
            const int64_t count = lesser(FunctionTile<Int>::kRows, keys - j) * kPanel;
            function.each_load(count, operands_.dtensors, [&](int64_t n, int tensor, int64_t index, float derivative) {
                if (ds[n] != 0.0f) sums_[tensor][index] += static_cast<double>(ds[n]) * static_cast<double>(derivative);
            });
        }
    }

    const Problem& problem_;
    const Operands& operands_;
    const cpu::BackwardState& state_;
    Arena arena_;
    Tile tile_;
    Scalar *q_, *dout_;
    float *p_, *ds_;
    int64_t* function_;
    double* sums_[functions::kMostTensors] = {};
};

// dtensors[n] from all parts.
inline void sum_tensor_parts(const Operands& x, const cpu::BackwardState& state, int64_t n) {
    const functions::TensorGradient& to = x.dtensors[n];
    if (!to) return;
    const functions::FunctionTensor& tensor = x.function_tensors[n];
    const double* sums = state.tensor_sums;
    for (int64_t t = 0; t < n; ++t)
        if (x.dtensors[t]) sums += elements_of(x.function_tensors[t]);
    const int64_t elements = elements_of(tensor);
    for (int64_t e = 0; e < elements; ++e) {
        double sum = 0.0;
        for (int64_t part = 0; part < state.tensor_parts; ++part) sum += sums[part * state.tensor_elements + e];
        int64_t offset = 0;
        for (int64_t d = tensor.rank, rest = e; d-- > 0; rest /= tensor.shape[d])
            offset += rest % tensor.shape[d] * to.stride[d];
        to.data[offset] = static_cast<float>(sum);
    }
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
