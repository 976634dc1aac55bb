// cache_test.cpp: keys in a cache, and the splits of few queries: what results may not depend on, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "shared/key_splits.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::ProblemData;

class Cache : public OnTarget {};

Case cached(dtype type, std::int64_t queries, std::int64_t page_size) {
    Case c;
    c.type = type;
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = queries;
    c.seqlen_k = 1300;
    c.used_k = {1300, 611};
    c.head_dim = 40;
    c.head_dim_v = 24;
    c.causal = true;
    c.sinks = conformance::Sinks::in_fp32;
    c.cache = {.present = true, .page_size = page_size, .shared = page_size == 16};
    c.threads = 3;
    c.poison_unseen = false;
    return c;
}

std::vector<double> part(const std::vector<double>& values, std::int64_t first, std::int64_t count) {
    return {values.begin() + first, values.begin() + first + count};
}

// A sequence with its keys in pages or rows, in a batch and over three threads, has the bits that it has alone with
// dense keys on one thread. batch_invariant promises it for calls of one class.
TEST_P(Cache, PagesHaveTheBitsOfDenseKeys) {
    each_type([](dtype type) {
        for (const std::int64_t queries : {1, 5, 64, 90})
            for (const std::int64_t page_size : {0, 1, 7, 16, 100}) {
                SCOPED_TRACE(std::to_string(queries) + " queries, pages of " + std::to_string(page_size));
                Case c = cached(type, queries, page_size);
                if (page_size == 16) {  // for which CUDA would have another kernel, with another tile, were they dense
                    c.head_dim = c.head_dim_v = 96;
                    c.sinks = conformance::Sinks::none;
                }
                c.batch_invariant = true;
                ProblemData data(c, where());
                flashtile::options o = data.options(which());
                data.forward(o);
                o.block_table = o.cache_batch_idx = o.seqused_k = {};
                o.max_seqlen_k = -1;
                o.threads = 1;
                for (std::int64_t b = 0; b < c.batch; ++b) {
                    const oracle::Sequence& s = data.reference.sequences[static_cast<std::size_t>(b)];
                    const auto keys = [&](const std::vector<double>& all, std::int64_t width) {
                        GuardedTensor t = fresh(type, {1, s.k_length, c.kv_heads, width});
                        const std::int64_t row = c.kv_heads * width;
                        t.fill(part(all, s.k_begin * row, s.k_length * row));
                        t.upload();
                        return t;
                    };
                    const GuardedTensor k = keys(data.reference.k, c.head_dim),
                                        v = keys(data.reference.v, c.head_dim_v);
                    GuardedTensor q = fresh(type, {1, queries, c.heads, c.head_dim});
                    const std::int64_t q_size = queries * c.heads * c.head_dim;
                    q.fill(part(data.reference.q, b * q_size, q_size));
                    q.upload();
                    GuardedTensor out = fresh(type, {1, queries, c.heads, c.head_dim_v});
                    GuardedTensor lse = fresh(fp32, {1, c.heads, queries});
                    forward(o, q.view(), k.view(), v.view(), out.view(), lse.view());
                    out.download(), lse.download();
                    const std::int64_t out_size = queries * c.heads * c.head_dim_v, lse_size = c.heads * queries;
                    EXPECT_EQ(out.values(), part(data.out.values(), b * out_size, out_size));
                    EXPECT_EQ(lse.values(), part(data.lse.values(), b * lse_size, lse_size));
                }
            }
    });
}

// Whether a task has all splits of its rows or one, which depends on the threads, shows in no bit.
TEST_P(Cache, StoredPartsHaveTheBitsOfOneTask) {
    each_type([](dtype type) {
        for (const int splits : {0, 1, 2, 5, 256}) {
            Case c = cached(type, 3, 16);
            c.num_splits = splits;
            ProblemData data(c, where());
            flashtile::options o = data.options(which());
            o.threads = 1;
            data.forward(o);
            const std::vector<double> out = data.out.values(), lse = data.lse.values();
            for (const int threads : {2, 8}) {
                poison_outputs(data);
                o.threads = threads;
                data.forward(o);
                EXPECT_EQ(data.out.values(), out) << splits << " splits, " << threads << " threads";
                EXPECT_EQ(data.lse.values(), lse) << splits << " splits, " << threads << " threads";
            }
        }
    });
}

// A prefix that is stated is read once for all sequences of its group; a table that names its pages for each has the
// same bits.
TEST_P(Cache, AStatedPrefixHasTheBitsOfPagesThatAreNamedForEach) {
    constexpr std::int64_t kPage = 16, kPrefix = 1600;
    each_type([](dtype type) {
        for (const bool packed : {false, true}) {
            Case c = cached(type, 3, kPage);
            c.batch = 5;
            c.seqlen_k = 2100;
            c.used_k = {2100, 1700, 1990, kPrefix + 1, 1603};
            if (packed) {
                c.lengths_q = {3, 1, 30, 2, 0};  // one has too many queries to be decoded
                c.lengths_k = std::exchange(c.used_k, {});
            }
            c.cache.groups = {0, 5};
            c.cache.prefixes = {kPrefix};
            ProblemData data(c, where());
            flashtile::options o = data.options(which());
            data.forward(o);
            const std::vector<double> out = data.out.values(), lse = data.lse.values();
            const std::size_t pages = data.block_table.size() / static_cast<std::size_t>(c.batch);
            for (std::size_t b = 1; b < static_cast<std::size_t>(c.batch); ++b)
                for (std::size_t page = 0; page < kPrefix / kPage; ++page)
                    data.block_table.set(b * pages + page, data.block_table.get(page));
            data.block_table.upload();
            poison_outputs(data);
            o.prefix_groups = o.prefix_lengths = {};
            data.forward(o);
            EXPECT_EQ(data.out.values(), out);
            EXPECT_EQ(data.lse.values(), lse);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(, Cache, testing::ValuesIn(all_targets()), target_name);

// Splits cover the keys, start at whole blocks, and are never more than the room that a plan makes for them.
TEST(KeySplits, CoverTheKeysAndFitTheirRoom) {
    for (const Index forced : {0, 1, 2, 3, 7, 64, 256})
        for (Index longest = 0; longest < 70000; longest += longest < 2000 ? 13 : 997)
            for (const Index seqlen_k : {longest, longest / 2, longest - 1, Index{128}, Index{1024}}) {
                if (seqlen_k < 0 || seqlen_k > longest) continue;
                const KeySplits splits = KeySplits::of(seqlen_k, {forced});
                ASSERT_EQ(splits.keys % KeySplits::kUnit, 0);
                ASSERT_GE(splits.keys * splits.count, seqlen_k);
                ASSERT_LT(splits.keys * (splits.count - 1), std::max<Index>(seqlen_k, 1));
                ASSERT_LE(splits.count, KeySplits::most(longest, {forced})) << seqlen_k << " of " << longest;
                ASSERT_LE(splits.count, forced != 0 ? forced : KeySplits::kMost);
            }
}

}  // namespace
}  // namespace flashtile::unit
