// attention.h: attention written the plain way, the whole S and P in memory: in fp64 as the truth, and as standard
// attention in the inputs' own precision, whose errors the tolerance is made of. Options mean what docs/semantics.md
// says. Nothing here comes from the library.
//
// Backward starts from what the interface hands it, out in the inputs' precision and lse in fp32: P = exp(S - lse) and
// D = rowsum(dO * out), so that the roundoff that these two were stored with is in the standard's errors too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "oracle/expression.h"
#include "oracle/precision.h"

namespace flashtile::oracle {

// A tensor that broadcasts to (batch, heads, seqlen_q, seqlen_k), row-major; absent where it has no values.
struct Broadcast {
    std::array<std::int64_t, 4> shape{1, 1, 1, 1};
    std::vector<double> values;

    bool present() const { return !values.empty(); }
    std::size_t index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
};

// Which blocks of keys each block of queries sees: the first counts[b, h, row] of indices[b, h, row, ..].
struct BlockList {
    std::array<std::int64_t, 2> shape{1, 1};  // (batch or 1, heads or 1)
    std::int64_t rows = 0;                    // blocks of queries
    std::int64_t room = 0;                    // for the indices of one
    std::vector<double> counts, indices;

    bool names(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t block) const;
};

// One sequence of the batch: rows [q_begin, q_begin + q_length) of q attend to rows of k and v likewise. A dense batch
// is a batch of equal sequences.
struct Sequence {
    std::int64_t q_begin = 0;
    std::int64_t q_length = 0;
    std::int64_t k_begin = 0;
    std::int64_t k_length = 0;
    std::int64_t first_k = 0;  // keys before it are hidden
    // What the sequence adds to the problem's diagonal, and to its origins of queries and of keys.
    std::int64_t diagonal = 0;
    std::int64_t origin_i = 0;
    std::int64_t origin_j = 0;
};

struct Problem {
    std::vector<Sequence> sequences;
    std::int64_t rows_q = 0;
    std::int64_t rows_k = 0;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t head_dim = 1;
    std::int64_t head_dim_v = 1;
    std::vector<double> q;  // (rows_q, heads, head_dim)
    std::vector<double> k;  // (rows_k, kv_heads, head_dim)
    std::vector<double> v;  // (rows_k, kv_heads, head_dim_v)

    double scale = 1.0;
    double softcap = 0.0;
    bool causal = false;
    bool top_left = false;      // where the diagonal of causal, window and ALiBi starts
    std::int64_t diagonal = 0;  // added to where it starts
    // Where sequence 0, head 0, query 0 and key 0 lie in the whole problem, by whose coordinates dropout draws.
    std::array<std::int64_t, 4> origin{};
    std::int64_t window_left = -1;
    std::int64_t window_right = -1;
    std::int64_t chunk = 0;      // not 0: a query sees no key of another chunk of so many positions than its own
    std::vector<double> slopes;  // (heads), or (batch, heads)
    bool slopes_per_batch = false;
    Broadcast bias;
    bool bias_in_fp32 = false;  // whatever the inputs' precision; its gradient too
    Broadcast mask;             // nonzero keeps
    std::shared_ptr<const Expression> score_function, mask_function;  // may be absent
    std::vector<std::size_t> tensor_elements;  // how many each of the score function's tensors has; empty: no gradients
    // Not 0: queries and keys of a block. What neither list names is hidden; of what the full one names the mask
    // function hides nothing.
    std::int64_t block_q = 0, block_k = 0;
    BlockList partial_blocks, full_blocks;
    Broadcast tree;  // (batch, heads, seqlen_q, seqlen_q): the mask of a sequence's last seqlen_q keys
    // (rows_q): where causal, windows, chunks and ALiBi take a query to be, and its key among its sequence's last
    // q_length ones; empty: on the diagonal, and keys at their numbers.
    std::vector<double> positions;
    std::vector<double> sinks;  // (heads): a score more in the denominator, of no value
    double dropout = 0.0;
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    // Which probabilities are kept, (batch, heads, seqlen_q, seqlen_k), in place of those that seed and offset draw.
    Broadcast explicit_keep;

    std::vector<double> dout;  // (rows_q, heads, head_dim_v)
    std::vector<double> dlse;  // (rows_q, heads), or empty
};

struct Result {
    std::vector<double> out;  // (rows_q, heads, head_dim_v)
    std::vector<double> lse;  // (rows_q, heads)
    std::vector<double> dq, dk, dv;
    std::vector<double> dbias;                  // of the bias's shape
    std::vector<double> dsinks;                 // (heads)
    std::vector<std::vector<double>> dtensors;  // of the score function's tensors
    // The largest magnitude that an attended score takes at any stage of being built.
    double largest_score = 0.0;
    double largest_lse = 0.0;
    // The largest sums of absolute terms that make up dq, dk, dv and dbias (exact_attention only): what a relative
    // roundoff of P, and what cancels in dS = P (dP - D + dlse), are measured by. Rows that a bias sums add up in dbias
    // like independent errors do.
    double largest_dq_terms = 0.0;
    double largest_dk_terms = 0.0;
    double largest_dv_terms = 0.0;
    double largest_dbias_terms = 0.0;
    double largest_dsinks_terms = 0.0;
    std::vector<double> largest_dtensors_terms;
    // What a relative roundoff of 1 in every element of the stored out would do to them through D, errors adding up
    // like independent ones do (exact_attention only).
    double largest_dq_from_out = 0.0;
    double largest_dk_from_out = 0.0;
    double largest_dbias_from_out = 0.0;
    double largest_dsinks_from_out = 0.0;
    std::vector<double> largest_dtensors_from_out;
};

// True where first_k, chunks, lists of blocks, the mask function, and the causal, window, tree and boolean masks let
// query i of sequence b see key j for head h.
bool sees(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

enum class Pass { forward, forward_and_backward };

Result exact_attention(const Problem& problem, Pass pass);
// fused: the sums of q.k are those of a processor with fused operations, as every one that matters has.
//
// The formats in which it stores S and the results, and P: of e4m3 e^(s - m) 256 times, so that its range is used, and
// divided by its sum after that.
struct Formats {
    Precision scores, probabilities;
    Formats(Precision both) : scores(both), probabilities(both) {}
    Formats(Precision of_scores, Precision of_probabilities) : scores(of_scores), probabilities(of_probabilities) {}
};
Result standard_attention(const Problem& problem, Formats formats, Pass pass, bool fused = false);

}  // namespace flashtile::oracle
