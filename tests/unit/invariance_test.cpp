// invariance_test.cpp: what results may not depend on, bit for bit: the number of threads and, with batch_invariant,
// the other sequences, heads and rows of the call.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/case_list.h"
#include "unit/on_target.h"
#include "unit/sanitizers.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::ProblemData;

Case medium(dtype type) {
    Case c;
    c.type = type;
    c.batch = 3;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = 150;
    c.seqlen_k = 170;
    c.head_dim = 40;
    c.head_dim_v = 24;
    c.batch_invariant = c.deterministic = true;
    c.poison_unseen = false;
    return c;
}

class Invariance : public OnTarget {};

TEST_P(Invariance, ThreadsAndRepetition) {
    each_type([](dtype type) {
        for (const int variant : {0, 1, 2, 3, 4}) {
            if (variant == 4 && where().type == FLASHTILE_CUDA) continue;  // which gives no gradients of tensors so far
            Case c = medium(type);
            c.batch_invariant = false;
            if (variant == 4) {
                c.score_function = "s + table[h, min(max(j - i, -15), 15) + 15] * slope[h]";
                c.tensor_gradients = true;
            }
            if (variant == 1) c.causal = true;
            if (variant == 2) {
                c.bias = {.present = true, .spans = {false, true, false, true}};
                c.dropout = 0.2;
            }
            if (variant == 3) {
                c.lengths_q = {1, 300, 40, 0, 17};
                c.lengths_k = {200, 300, 5, 3, 64};
                c.mask.present = true;
                c.slopes = conformance::Slopes::per_head;
            }
            ProblemData data(c, where());
            flashtile::options o = data.options(which());
            o.threads = 1;
            const Outputs one = run(data, o);
            for (const int threads : {1, 2, 3, 8}) {
                o.threads = threads;
                EXPECT_TRUE(run(data, o) == one) << "variant " << variant << ", " << threads << " threads";
            }
        }
    });
}

// Part `b` of a (batch, ...) tensor.
tensor entry(const GuardedTensor& t, std::int64_t b, std::int64_t heads_from = 0, std::int64_t heads = -1,
             int head_dim = 2) {
    flashtile_tensor raw = t.view().raw();
    const auto size = static_cast<std::int64_t>(conformance::bytes_of(static_cast<dtype>(raw.dtype)));
    raw.data = static_cast<char*>(raw.data) + (b * raw.stride[0] + heads_from * raw.stride[head_dim]) * size;
    raw.shape[0] = 1;
    if (heads >= 0) raw.shape[head_dim] = heads;
    return tensor(raw);
}

TEST_P(Invariance, ASequenceAlone) {
    each_type([](dtype type) {
        Case c = medium(type);
        c.causal = true;
        ProblemData together(c, where());
        const flashtile::options o = together.options(which());
        const Outputs expected = run(together, o);
        poison_outputs(together);
        together.upload();
        for (std::int64_t b = 0; b < c.batch; ++b) {
            const auto part = [&](const GuardedTensor& t) { return entry(t, b); };
            forward(o, part(together.q), part(together.k), part(together.v), part(together.out), part(together.lse));
            backward(o, part(together.q), part(together.k), part(together.v), part(together.out), part(together.lse),
                     part(together.dout), part(together.dq), part(together.dk), part(together.dv));
        }
        together.download();
        expect_same_bits(outputs_of(together), expected);
    });
}

TEST_P(Invariance, AHeadGroupAlone) {
    each_type([](dtype type) {
        Case c = medium(type);
        ProblemData together(c, where());
        const flashtile::options o = together.options(which());
        const Outputs expected = run(together, o);
        poison_outputs(together);
        together.upload();
        for (std::int64_t b = 0; b < c.batch; ++b)
            for (std::int64_t g = c.kv_heads; g-- > 0;) {  // and in the other order
                const std::int64_t group = c.heads / c.kv_heads;
                const auto q_like = [&](const GuardedTensor& t) { return entry(t, b, g * group, group); };
                const auto k_like = [&](const GuardedTensor& t) { return entry(t, b, g, 1); };
                const tensor lse = entry(together.lse, b, g * group, group, 1);
                forward(o, q_like(together.q), k_like(together.k), k_like(together.v), q_like(together.out), lse);
                backward(o, q_like(together.q), k_like(together.k), k_like(together.v), q_like(together.out), lse,
                         q_like(together.dout), q_like(together.dq), k_like(together.dk), k_like(together.dv));
            }
        together.download();
        expect_same_bits(outputs_of(together), expected);
    });
}

// Row i with the keys that it sees: alone among calls of few queries, and as the last of 65 among calls of many, which
// is another class (docs/semantics.md).
TEST_P(Invariance, ARowAlone) {
    if (kAddressSanitizer) GTEST_SKIP() << "the checks part multiplications from the additions they are fused with";
    each_type([](dtype type) {
        for (const int n : {0, 1, 2, 3, 4, 5, 6, 7}) {
            const int variant = n % 4;
            const std::int64_t together = n < 4 ? 1 : 65;
            const bool causal = variant == 1 || variant == 2;
            Case c = medium(type);
            if (together == 1) c.seqlen_q = 64;
            c.batch = 1;
            c.heads = c.kv_heads = 1;
            c.causal = causal;
            if (variant == 2) c.softcap = 5.0f;
            if (variant == 3) c.seqlen_k = 300;
            ProblemData data(c, where());
            if (variant == 3) {
                // a late key far above the rest for every third row, and for the next one so much that its value,
                // though not the result, is too large to be weighed by e^(score - any earlier score)
                for (std::int64_t j = 0; j < c.seqlen_k; ++j)
                    data.k.set(static_cast<std::size_t>(j * c.head_dim), j == 150 ? 300.0 : 0.0);
                for (std::int64_t i = 0; i < c.seqlen_q; ++i)
                    data.q.set(static_cast<std::size_t>(i * c.head_dim), i % 3 == 0 ? 0.0 : i % 3 == 1 ? 40.0 : 1.0);
                data.v.set(static_cast<std::size_t>(150 * c.head_dim_v), type == fp16 ? 32768.0 : std::ldexp(1.0, 100));
                data.upload();
            }
            const flashtile::options o = data.options(which());
            const Outputs expected = run(data, o);
            for (std::int64_t i = together - 1; i < c.seqlen_q; i += 7) {
                const std::int64_t keys = causal ? i + c.seqlen_k - c.seqlen_q + 1 : c.seqlen_k;
                const auto slice = [&](const GuardedTensor& t, std::int64_t first, std::int64_t rows) {
                    flashtile_tensor raw = t.view().raw();
                    raw.data = static_cast<char*>(raw.data) +
                               first * raw.stride[1] *
                                   static_cast<std::int64_t>(conformance::bytes_of(static_cast<dtype>(raw.dtype)));
                    raw.shape[1] = rows;
                    return tensor(raw);
                };
                const std::int64_t first = i - together + 1;
                GuardedTensor out = fresh(type, {1, together, 1, c.head_dim_v});
                GuardedTensor lse = fresh(fp32, {1, 1, together});
                forward(o, slice(data.q, first, together), slice(data.k, 0, keys), slice(data.v, 0, keys), out.view(),
                        lse.view());
                GuardedTensor dq = fresh(type, {1, together, 1, c.head_dim});
                GuardedTensor dk = fresh(type, {1, keys, 1, c.head_dim});
                GuardedTensor dv = fresh(type, {1, keys, 1, c.head_dim_v});
                backward(o, slice(data.q, first, together), slice(data.k, 0, keys), slice(data.v, 0, keys), out.view(),
                         lse.view(), slice(data.dout, first, together), dq.view(), dk.view(), dv.view());
                for (GuardedTensor* t : {&out, &lse, &dq}) t->download();
                const auto last_of = [](const GuardedTensor& t, std::int64_t width) {
                    const std::vector<double> values = t.values();
                    return std::vector<double>(values.end() - width, values.end());
                };
                const auto row = expected.out.begin() + i * c.head_dim_v;
                EXPECT_EQ(last_of(out, c.head_dim_v), std::vector<double>(row, row + c.head_dim_v)) << "row " << i;
                EXPECT_EQ(last_of(lse, 1)[0], expected.lse[static_cast<std::size_t>(i)]) << "row " << i;
                const auto dq_row = expected.dq.begin() + i * c.head_dim;
                EXPECT_EQ(last_of(dq, c.head_dim), std::vector<double>(dq_row, dq_row + c.head_dim)) << "row " << i;
            }
        }
    });
}

// The same sequences, packed, and padded to one length with seqused. One with few queries has keys for two splits.
TEST_P(Invariance, PackedAndPadded) {
    each_type([](dtype type) {
        Case c = medium(type);
        c.batch = 1;
        c.lengths_q = {33, 150, 1, 64};
        c.lengths_k = {633, 170, 70, 64};
        c.causal = true;
        ProblemData together(c, where());
        const flashtile::options packed = together.options(which());
        const Outputs expected = run(together, packed);
        flashtile::options alone = packed;
        alone.cu_seqlens_q = alone.cu_seqlens_k = {};
        alone.max_seqlen_q = alone.max_seqlen_k = -1;
        for (std::size_t b = 0; b < c.lengths_q.size(); ++b) {
            const oracle::Sequence& s = together.reference.sequences[b];
            const std::int64_t padding = 19;  // rows of the next sequences: past seqused
            const std::int64_t padded = std::min(s.k_length + padding, together.reference.rows_k - s.k_begin);
            GuardedTensor used = fresh(dtype::int32, {1});
            used.set(0, static_cast<double>(s.k_length));
            used.upload();
            alone.seqused_k = used.view();
            const auto slice = [](const GuardedTensor& t, std::int64_t first, std::int64_t rows) {
                flashtile_tensor raw = t.view().raw();
                const auto size = static_cast<std::int64_t>(conformance::bytes_of(static_cast<dtype>(raw.dtype)));
                return flashtile::view(static_cast<char*>(raw.data) + first * raw.stride[0] * size,
                                       static_cast<dtype>(raw.dtype), {1, rows, raw.shape[1], raw.shape[2]},
                                       {0, raw.stride[0], raw.stride[1], raw.stride[2]}, where());
            };
            GuardedTensor out = fresh(type, {1, s.q_length, c.heads, c.head_dim_v});
            GuardedTensor lse = fresh(fp32, {1, c.heads, s.q_length});
            GuardedTensor dq = fresh(type, {1, s.q_length, c.heads, c.head_dim});
            GuardedTensor dk = fresh(type, {1, padded, c.kv_heads, c.head_dim});
            GuardedTensor dv = fresh(type, {1, padded, c.kv_heads, c.head_dim_v});
            const tensor q = slice(together.q, s.q_begin, s.q_length), k = slice(together.k, s.k_begin, padded),
                         v = slice(together.v, s.k_begin, padded), dout = slice(together.dout, s.q_begin, s.q_length);
            forward(alone, q, k, v, out.view(), lse.view());
            backward(alone, q, k, v, out.view(), lse.view(), dout, dq.view(), dk.view(), dv.view());
            for (GuardedTensor* t : {&out, &lse, &dq, &dk, &dv}) t->download();
            const auto rows = [](const std::vector<double>& from, std::int64_t first, std::int64_t count,
                                 std::int64_t width) {
                return std::vector<double>(from.begin() + first * width, from.begin() + (first + count) * width);
            };
            const auto head = [](const GuardedTensor& t, std::int64_t count) {
                const std::vector<double> values = t.values();
                return std::vector<double>(values.begin(), values.begin() + count);
            };
            const std::int64_t q_width = c.heads * c.head_dim, k_width = c.kv_heads * c.head_dim,
                               v_width = c.kv_heads * c.head_dim_v;
            EXPECT_EQ(out.values(), rows(expected.out, s.q_begin, s.q_length, c.heads * c.head_dim_v));
            EXPECT_EQ(dq.values(), rows(expected.dq, s.q_begin, s.q_length, q_width));
            EXPECT_EQ(head(dk, s.k_length * k_width), rows(expected.dk, s.k_begin, s.k_length, k_width));
            EXPECT_EQ(head(dv, s.k_length * v_width), rows(expected.dv, s.k_begin, s.k_length, v_width));
        }
    });
}

TEST_P(Invariance, LseIsOptional) {
    each_type([](dtype type) {
        Case c = medium(type);
        ProblemData data(c, where());
        const flashtile::options o = data.options(which());
        data.forward(o);
        const std::vector<double> with = data.out.values();
        data.out.poison();
        data.upload();
        forward(o, data.q.view(), data.k.view(), data.v.view(), data.out.view());
        data.download();
        EXPECT_EQ(data.out.values(), with);
    });
}

INSTANTIATE_TEST_SUITE_P(, Invariance, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
