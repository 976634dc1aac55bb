// case.h: one problem of the conformance list: sizes, options, memory layouts and a seed for its numbers. It can be
// printed, so that a failure says what failed.
#pragma once

#include <array>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <optional>
#include <string>
#include <vector>

#include "conformance/guarded_tensor.h"

namespace flashtile::conformance {

// A bias or mask: which of (batch, heads, seqlen_q, seqlen_k) it spans; it has size 1 in the others.
struct BroadcastSpec {
    bool present = false;
    std::array<bool, 4> spans{true, true, true, true};
    int rank = 4;           // leading dimensions that it does not span may be left out
    bool expanded = false;  // a size-1 batch or head dimension is given in full, with stride 0
};

// Keys and values in a cache: pages, or with page_size 0 rows that cache_batch_idx names.
struct CacheSpec {
    bool present = false;
    std::int64_t page_size = 0;
    bool shared = false;  // the sequences' tables start with the same pages, or name the same row
    // prefix_groups and prefix_lengths: sequences of a group have their first keys in the pages of the group's first.
    std::vector<std::int64_t> groups{};
    std::vector<std::int64_t> prefixes{};
};

// Lists of blocks: those of sequences and heads of their own, or one list for all. About a third of the blocks is
// hidden, and of the rest half is full where there is a full list.
struct BlockListsSpec {
    std::int64_t block_q = 0;  // 0: no lists
    std::int64_t block_k = 0;
    bool per_sequence = false;
    bool per_head = false;
    bool full = false;
};

enum class Sinks { none, in_fp32, in_the_inputs_type };

// e4m3 keys and values, and queries too unless these have the case's type, which is out's.
enum class Scaling { none, whole, heads, blocks };
struct E4m3Spec {
    bool present = false;
    bool keys_only = false;
    Scaling q = Scaling::none;
    Scaling k = Scaling::none;
    Scaling v = Scaling::none;
    int block = 64;

    bool blocks() const { return (q == Scaling::blocks && !keys_only) || k == Scaling::blocks || v == Scaling::blocks; }
    // The same with scales that go together: of heads there are none beside those of blocks.
    E4m3Spec settled() const {
        E4m3Spec spec = *this;
        for (Scaling* scaling : {&spec.q, &spec.k, &spec.v})
            if (blocks() && *scaling == Scaling::heads) *scaling = Scaling::blocks;
        return spec;
    }
};

enum class Slopes { none, per_head, per_batch_and_head };
enum class BiasValues { random, lowest_hides, infinity_hides, large };  // large: some 50, or past -1e10

struct Case {
    std::string name;
    dtype type = fp32;
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t seqlen_q = 1;
    std::int64_t seqlen_k = 1;
    std::int64_t head_dim = 16;
    std::int64_t head_dim_v = 16;
    E4m3Spec e4m3;
    bool out_in_fp32 = false;
    bool latent = false;  // v is the first columns of k, in the same memory

    // Not empty: a packed batch of these lengths; batch, seqlen_q and seqlen_k above are then unused.
    std::vector<std::int64_t> lengths_q;
    std::vector<std::int64_t> lengths_k;
    std::int64_t spare_rows = 0;  // after the last sequence
    bool wide_lengths = false;    // int64 instead of int32
    std::vector<std::int64_t> used_k;
    std::vector<std::int64_t> used_q;
    std::vector<std::int64_t> first_k;
    CacheSpec cache;
    bool tree = false;
    bool positions = false;  // beside the tree

    causal_mode causal;
    window_size window;
    bool align_top_left = false;
    std::int64_t chunk = 0;
    std::int64_t diagonal = 0;
    shard_origin origin;
    std::vector<std::int64_t> diagonals;  // in place of the diagonal, one a sequence; likewise of origin's i and j
    std::vector<std::int64_t> origins_i;
    std::vector<std::int64_t> origins_j;
    std::optional<float> scale;
    float softcap = 0.0f;
    Slopes slopes = Slopes::none;
    BroadcastSpec bias;
    bool bias_in_fp32 = false;
    BiasValues bias_values = BiasValues::random;
    BroadcastSpec mask;
    // Texts of functions; they may name the tensors of function_tensors.h.
    std::string score_function;
    std::string mask_function;
    bool tensor_gradients = false;  // of the floats that the score function names
    BlockListsSpec blocks;
    double mask_density = 0.7;
    Sinks sinks = Sinks::none;
    double dropout = 0.0;
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    bool seed_in_memory = false;
    bool with_dlse = false;
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;
    int num_splits = 0;
    int threads = 1;

    Layout inputs;
    Layout outputs;
    Guard guard = Guard::nan_bands;
    double magnitude_qk = 1.0;
    double magnitude_v = 1.0;
    double early_key = 1.0;  // a factor of each sequence's key 5, since key blocks may be walked from the last one on
    bool poison_unseen = true;  // keys that no query sees hold NaN and infinities
    std::uint64_t data_seed = 1;

    bool packed() const { return !lengths_q.empty(); }
    std::int64_t sequences() const { return packed() ? static_cast<std::int64_t>(lengths_q.size()) : batch; }
    std::int64_t longest_q() const;
    std::int64_t longest_k() const;
    // Backward takes no cache, and no lists but cu_seqlens and seqused_k. dk and dv of one memory are no use.
    bool forward_only() const {
        return cache.present || latent || tree || !used_q.empty() || !first_k.empty() || e4m3.present || out_in_fp32;
    }
    bool e4m3_queries() const { return e4m3.present && !e4m3.keys_only; }
    // Of what is added to scores: of e4m3 queries' type it may not be.
    dtype score_type(bool in_fp32) const { return in_fp32 || e4m3_queries() ? fp32 : type; }
};

std::string to_string(const Case& problem);

}  // namespace flashtile::conformance
