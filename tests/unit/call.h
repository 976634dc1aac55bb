// call.h: a call of the C interface, made from a problem with all the tensors that it has. A test may spoil any part of
// it.
#pragma once

#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "conformance/problem_data.h"

namespace flashtile::unit {

// A problem without options that runs in no time.
inline conformance::Case small() {
    conformance::Case c;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = 20;
    c.seqlen_k = 30;
    return c;
}

struct Call {
    explicit Call(const conformance::Case& problem)
        : data(problem), cpp_options(data.options(isa::automatic)), options(detail::c_options(cpp_options)) {
        bind(data.q, q, inputs.q);
        bind(data.k, k, inputs.k);
        bind(data.v, v, inputs.v);
        bind(data.slopes, slopes, inputs.alibi_slopes);
        bind(data.bias, bias, inputs.bias);
        bind(data.mask, mask, inputs.mask);
        bind(data.cu_seqlens_q, cu_seqlens_q, inputs.cu_seqlens_q);
        bind(data.cu_seqlens_k, cu_seqlens_k, inputs.cu_seqlens_k);
        bind(data.used_k, used_k, inputs.seqused_k);
        bind(data.block_table, block_table, inputs.block_table);
        bind(data.cache_batch_idx, cache_batch_idx, inputs.cache_batch_idx);
        bind(data.first_k, first_k, inputs.first_k);
        bind(data.used_q, used_q, inputs.seqused_q);
        bind(data.tree, tree, inputs.tree_mask);
        bind(data.sinks, sinks, inputs.sinks);
        bind(data.positions, positions, inputs.positions);
        bind(data.prefix_groups, prefix_groups, inputs.prefix_groups);
        bind(data.prefix_lengths, prefix_lengths, inputs.prefix_lengths);
        bind(data.diagonals, diagonals, inputs.diagonals);
        bind(data.origins_i, origins_i, inputs.origins_i);
        bind(data.origins_j, origins_j, inputs.origins_j);
        bind(data.q_scale, q_scale, inputs.q_scale);
        bind(data.k_scale, k_scale, inputs.k_scale);
        bind(data.v_scale, v_scale, inputs.v_scale);
        inputs.scale_block = cpp_options.scale_block;
        inputs.max_seqlen_q = cpp_options.max_seqlen_q;
        inputs.max_seqlen_k = cpp_options.max_seqlen_k;
        bind(data.out, out, outputs.out);
        bind(data.lse, lse, outputs.lse);
        gradients.out = &out;
        gradients.lse = &lse;
        bind(data.dout, dout, gradients.dout);
        bind(data.dlse, dlse, gradients.dlse);
        bind(data.dq, dq, gradients.dq);
        bind(data.dk, dk, gradients.dk);
        bind(data.dv, dv, gradients.dv);
        bind(data.dbias, dbias, gradients.dbias);
        bind(data.dsinks, dsinks, gradients.dsinks);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    flashtile_status forward() { return flashtile_forward(&options, &inputs, &outputs); }
    flashtile_status backward() { return flashtile_backward(&options, &inputs, &gradients); }

    // True if no byte of any output has been written since it was poisoned.
    bool outputs_untouched() const {
        for (const auto* t : {&data.out, &data.lse, &data.dq, &data.dk, &data.dv, &data.dbias, &data.dsinks})
            if (t->present() && !t->poison_intact(std::vector<bool>(t->size(), false))) return false;
        return true;
    }

    conformance::ProblemData data;
    flashtile::options cpp_options;
    flashtile_options options;
    flashtile_inputs inputs = FLASHTILE_INPUTS_INIT;
    flashtile_forward_outputs outputs = FLASHTILE_FORWARD_OUTPUTS_INIT;
    flashtile_gradients gradients = FLASHTILE_GRADIENTS_INIT;
    flashtile_tensor q{}, k{}, v{}, slopes{}, bias{}, mask{}, cu_seqlens_q{}, cu_seqlens_k{}, used_k{};
    flashtile_tensor block_table{}, cache_batch_idx{}, first_k{}, used_q{}, tree{}, sinks{};
    flashtile_tensor q_scale{}, k_scale{}, v_scale{};
    flashtile_tensor positions{}, prefix_groups{}, prefix_lengths{}, diagonals{}, origins_i{}, origins_j{};
    flashtile_tensor out{}, lse{}, dout{}, dlse{}, dq{}, dk{}, dv{}, dbias{}, dsinks{};

private:
    static void bind(const conformance::GuardedTensor& from, flashtile_tensor& to, const flashtile_tensor*& argument) {
        if (!from.present()) return;
        to = from.view().raw();
        argument = &to;
    }
};

}  // namespace flashtile::unit
