// serving_test.cpp: attention on a cache on a GPU, beyond what the conformance list has of it: what is appended first,
// graphs that are replayed with other lengths and pages, few multiprocessors, and lists of prefixes that lie.
#include <algorithm>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "conformance/guarded_tensor.h"
#include "conformance/random_source.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Guard;
using conformance::GuardedTensor;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kBatch = 3, kHeads = 8, kKvHeads = 2, kDim = 64, kPages = 96, kPageSize = 16, kMaxPages = 32;
constexpr std::int64_t kPairs = 24, kPositions = kMaxPages * kPageSize;

// Three sequences on pages of their own, with a query or several each.
class Cache {
public:
    explicit Cache(std::int64_t queries, dtype type = bf16, Guard guard = Guard::nan_bands)
        : q(type, {kBatch, queries, kHeads, kDim}, {}, guard, kGpu),
          out(type, {kBatch, queries, kHeads, kDim}, {}, guard, kGpu),
          rotated(fresh(type, {kBatch, queries, kHeads, kDim})),
          k_new(fresh(type, {kBatch, queries, kKvHeads, kDim})),
          v_new(fresh(type, {kBatch, queries, kKvHeads, kDim})),
          k(type, {kPages, kPageSize, kKvHeads, kDim}, {}, guard, kGpu),
          v(type, {kPages, kPageSize, kKvHeads, kDim}, {}, guard, kGpu),
          lse(fresh(fp32, {kBatch, kHeads, queries})),
          cos(fresh(fp32, {kPositions, kPairs})),
          sin(fresh(fp32, {kPositions, kPairs})),
          lengths(fresh(dtype::int32, {kBatch})),
          table(fresh(dtype::int32, {kBatch, kMaxPages})) {
        conformance::RandomSource random(31);
        for (GuardedTensor* t : {&q, &k_new, &v_new, &k, &v, &cos, &sin})
            for (std::size_t n = 0; n < t->size(); ++n) t->set(n, random.normal());
        set_table(0);
        set_lengths({401, 17, 0});
        for (GuardedTensor* t : {&q, &out, &rotated, &k_new, &v_new, &k, &v, &lse, &cos, &sin}) t->upload();
    }

    static GuardedTensor fresh(dtype type, const Shape& shape) { return {type, shape, {}, Guard::nan_bands, kGpu}; }

    void set_lengths(const std::vector<int>& values) {
        for (std::size_t b = 0; b < values.size(); ++b) lengths.set(b, values[b]);
        lengths.upload();
    }
    // Other pages for every number.
    void set_table(std::size_t turn) {
        for (std::size_t n = 0; n < table.size(); ++n)
            table.set(n, static_cast<double>((n * 35 + turn) % static_cast<std::size_t>(kPages)));
        table.upload();
    }

    options called() const {
        options o{.causal = true};
        o.block_table = table.view();
        o.seqused_k = lengths.view();
        return o;
    }
    void attend(const options& o, const GuardedTensor& queries) {
        forward(o, queries.view(), k.view(), v.view(), out.view(), lse.view());
    }
    std::vector<double> result() {
        out.download(), lse.download();
        std::vector<double> all = out.values();
        const std::vector<double> rest = lse.values();
        all.insert(all.end(), rest.begin(), rest.end());
        return all;
    }

    GuardedTensor q, out, rotated, k_new, v_new, k, v, lse, cos, sin, lengths, table;
};

class Serving : public OnGpu {};

TEST_F(Serving, AppendingWithinForwardHasTheBitsOfTheTwoCalls) {
    for (const std::int64_t queries : {1, 5})
        for (const bool rotates : {false, true})
            for (const bool keeps_rotated : {false, true}) {
                if (keeps_rotated && !rotates) continue;
                SCOPED_TRACE(std::to_string(queries) + " queries, rotated " + std::to_string(rotates));
                const auto appended = [&](const Cache& to) {
                    append_args a{.k = to.k_new.view(), .v = to.v_new.view()};
                    if (rotates) a.rotary_cos = to.cos.view(), a.rotary_sin = to.sin.view();
                    return a;
                };
                Cache two(queries);
                append_args first = appended(two);
                first.k_cache = two.k.view(), first.v_cache = two.v.view();
                first.block_table = two.table.view(), first.cache_seqlens = two.lengths.view();
                if (rotates) first.q = two.q.view(), first.q_out = two.rotated.view();
                append_kv({.causal = true}, first);
                const int added = static_cast<int>(queries);
                two.set_lengths({401 + added, 17 + added, added});
                two.attend(two.called(), rotates ? two.rotated : two.q);

                Cache one(queries);
                append_args within = appended(one);
                if (keeps_rotated) within.q_out = one.rotated.view();
                append_forward(one.called(), within, one.q.view(), one.k.view(), one.v.view(), one.out.view(),
                               one.lse.view());
                EXPECT_EQ(one.result(), two.result());
                for (Cache* cache : {&one, &two})
                    for (GuardedTensor* t : {&cache->k, &cache->v, &cache->rotated}) t->download();
                EXPECT_EQ(one.k.values(), two.k.values());
                EXPECT_EQ(one.v.values(), two.v.values());
                if (keeps_rotated) {
                    EXPECT_EQ(one.rotated.values(), two.rotated.values());
                }
            }
}

TEST_F(Serving, AGraphGoesByTheLengthsAndPagesThatAReplayFinds) {
    Cache replayed(1), direct(1);
    const gpu_resources::Stream stream;
    options o = replayed.called();
    o.stream = stream.handle();
    replayed.attend(o, replayed.q);  // loads the kernels
    stream.synchronize();
    const gpu_resources::Graph graph(stream, [&] { replayed.attend(o, replayed.q); });
    std::vector<double> previous;
    for (int turn = 0; turn < 4; ++turn) {
        for (Cache* cache : {&replayed, &direct}) {
            cache->set_lengths({512 - 100 * turn, 3 * turn, 1 + 150 * turn});
            cache->set_table(static_cast<std::size_t>(turn));
        }
        graph.launch(stream);
        stream.synchronize();
        direct.attend(direct.called(), direct.q);
        EXPECT_EQ(replayed.result(), direct.result()) << "replay " << turn;
        EXPECT_NE(replayed.result(), previous) << "replay " << turn;
        previous = replayed.result();
    }
}

// How many thread blocks share the work changes no bits where the splits are the same.
TEST_F(Serving, FewMultiprocessorsGiveTheSameBits) {
    for (const std::int64_t queries : {1, 5}) {
        Cache all(queries), few(queries);
        options o = all.called();
        o.num_splits = 3;
        all.attend(o, all.q);
        o = few.called();
        o.num_splits = 3;
        for (const int limit : {1, 7}) {
            o.sm_limit = limit;
            few.attend(o, few.q);
            EXPECT_EQ(few.result(), all.result()) << limit;
        }
    }
}

// Entries that no group or table could have lead nowhere out of bounds, and a good call is right afterwards; also where
// Hopper's kernels take the tensors, which are aligned then.
TEST_F(Serving, ListsOfPrefixesMayLie) {
    for (const Guard guard : {Guard::nan_bands, Guard::page_before}) {
        Cache cache(2, bf16, guard), plain(2, bf16, guard);
        plain.attend(plain.called(), plain.q);
        constexpr int kFar = 1 << 30;
        const std::vector<std::vector<int>> lies = {{-5, 2, 3, 3},         {0, kFar, -kFar, 2}, {2, 1, 0, 3},
                                                    {kFar, kFar, kFar, 0}, {0, 3, 1, 3},        {0, 3, 0, 3}};
        GuardedTensor groups = Cache::fresh(dtype::int32, {4}), prefixes = Cache::fresh(dtype::int32, {3});
        options o = cache.called();
        o.prefix_groups = groups.view();
        o.prefix_lengths = prefixes.view();
        for (const std::vector<int>& lie : lies)
            for (const int length : {-1, 40, kFar}) {
                for (std::size_t n = 0; n < 4; ++n) groups.set(n, lie[n]);
                for (std::size_t n = 0; n < 3; ++n) prefixes.set(n, length);
                groups.upload(), prefixes.upload();
                cache.attend(o, cache.q);
                cache.result();
            }
        cache.attend(cache.called(), cache.q);
        EXPECT_EQ(cache.result(), plain.result());
    }
}

}  // namespace
}  // namespace flashtile::device_tests
