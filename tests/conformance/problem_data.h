// problem_data.h: the data of a case: the tensors that the library gets, and the same numbers in the form that the
// oracle takes.
#pragma once

#include <array>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <utility>
#include <vector>

#include "conformance/case.h"
#include "conformance/guarded_tensor.h"
#include "oracle/attention.h"

namespace flashtile::conformance {

struct ProblemData {
    explicit ProblemData(const Case& problem, device where = cpu);
    ProblemData(const ProblemData&) = delete;
    ProblemData& operator=(const ProblemData&) = delete;

    flashtile::options options(isa which) const;
    backward_args gradients() const;

    // What the library gets as v.
    tensor values() const { return problem.latent ? k.view_of_columns(problem.head_dim_v) : v.view(); }

    // Calls the library on these tensors, where they lie, and waits for what it wrote.
    void forward(const flashtile::options& options);
    void backward(const flashtile::options& options);
    // Copy every tensor to the GPU, and back. They do nothing on the CPU.
    void upload();
    void download();

    // Flags of the elements of q-like (or k-like) tensors of `width` that belong to a sequence.
    std::vector<bool> owned_q(std::int64_t width) const { return owned(row_owned_q, width); }
    std::vector<bool> owned_k(std::int64_t width) const { return owned(row_owned_k, width); }
    // lse in the oracle's order, (row, head).
    std::vector<double> lse_by_row() const;
    // Flags of lse's own elements.
    std::vector<bool> owned_lse() const;

    const Case problem;
    oracle::Problem reference;
    GuardedTensor q, k, v, slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, used_k, dout, dlse;  // inputs
    GuardedTensor block_table, cache_batch_idx, first_k, used_q, tree, sinks;                   // likewise
    GuardedTensor positions, prefix_groups, prefix_lengths, diagonals, origins_i, origins_j;    // likewise
    GuardedTensor q_scale, k_scale, v_scale;                                                    // likewise
    std::vector<GuardedTensor> function_tensors;                                                // likewise
    GuardedTensor block_counts, block_indices, full_counts, full_indices;                       // likewise
    GuardedTensor out, lse, dq, dk, dv, dbias, dsinks;                                          // outputs
    std::vector<GuardedTensor> dtensors;  // likewise, of function_tensors; absent where no gradient is asked for

    // Each input by name.
    std::vector<std::pair<const char*, GuardedTensor*>> inputs();
    std::vector<GuardedTensor*> outputs();

private:
    std::vector<bool> owned(const std::vector<bool>& rows, std::int64_t width) const;
    std::size_t lse_element(std::int64_t row, std::int64_t head) const;
    void lay_out_sequences();
    void lay_out_cache();
    std::pair<std::int64_t, std::int64_t> prefix_of(std::int64_t b) const;
    std::vector<double> by_key(const GuardedTensor& of_cache, std::int64_t width) const;
    std::size_t q_scale_of(std::int64_t b, std::int64_t i, std::int64_t h) const;
    std::size_t key_scale_of(Scaling scaling, std::int64_t b, std::int64_t j, std::int64_t h) const;
    void make_scales();
    void apply_scales();
    void poison_unseen_scales(const std::vector<bool>& seen);
    void make_tensors();
    GuardedTensor make(dtype type, std::vector<std::int64_t> shape, const Layout& layout = {}) const;
    void fill_tensors();
    void draw_positions();
    void make_block_lists();
    void fill_block_lists();
    void poison_unseen();
    void poison_unused_bias();
    GuardedTensor make_broadcast(const BroadcastSpec& spec, dtype type) const;
    oracle::Broadcast read_broadcast(const BroadcastSpec& spec, const GuardedTensor& from) const;

    std::vector<bool> row_owned_q, row_owned_k;
    std::vector<std::int64_t> key_rows;     // where each of the oracle's rows of k lies among the library's
    std::vector<std::int64_t> cache_shape;  // its first two dimensions
    std::vector<std::vector<std::int64_t>> named_pages;  // of each sequence, -1 where none is read; or the one row
    std::vector<flashtile_named_tensor> named_tensors_, named_gradients_;
    device where_;
    std::array<std::uint64_t, 2> seed_and_offset_;
    gpu_resources::Buffer seed_and_offset_on_gpu_;
};

}  // namespace flashtile::conformance
