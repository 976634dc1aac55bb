// append_forward_test.cpp: appending within forward gives the bits of append_kv and then forward.
#include <gtest/gtest.h>

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <random>
#include <vector>

namespace flashtile::unit {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kDim = 16, kPages = 9, kPageSize = 8, kMaxPages = 4;
constexpr std::int64_t kPairs = 6;  // that are rotated

struct Memory {
    explicit Memory(std::int64_t queries) : queries_(queries) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        for (std::vector<float>* x : {&q, &k_new, &v_new, &k_cache, &v_cache, &cos, &sin}) {
            const std::int64_t size = x == &q                          ? kBatch * queries * kHeads * kDim
                                      : x == &k_new || x == &v_new     ? kBatch * queries * kKvHeads * kDim
                                      : x == &k_cache || x == &v_cache ? kPages * kPageSize * kKvHeads * kDim
                                                                       : 64 * kPairs;
            x->resize(static_cast<std::size_t>(size));
            for (float& value : *x) value = normal(random);
        }
        rotated.resize(q.size());
        out.assign(q.size(), 7.0f);
        lse.assign(static_cast<std::size_t>(kBatch * kHeads * queries), 7.0f);
    }

    tensor rows(std::vector<float>& x, std::int64_t heads) const {
        return view(x.data(), fp32, {kBatch, queries_, heads, kDim});
    }
    tensor pages(std::vector<float>& x) const { return view(x.data(), fp32, {kPages, kPageSize, kKvHeads, kDim}); }
    tensor table() { return view(block_table.data(), int32_type, {kBatch, kMaxPages}); }
    tensor lengths(std::vector<std::int32_t>& x) const { return view(x.data(), int32_type, {kBatch}); }

    append_args appended(bool rotates) {
        append_args a;
        a.k = rows(k_new, kKvHeads), a.v = rows(v_new, kKvHeads);
        if (rotates) {
            a.rotary_cos = view(cos.data(), fp32, {64, kPairs});
            a.rotary_sin = view(sin.data(), fp32, {64, kPairs});
            a.rotary_interleaved = true;
        }
        return a;
    }

    static constexpr dtype int32_type = dtype::int32;
    std::int64_t queries_;
    std::vector<float> q, k_new, v_new, k_cache, v_cache, cos, sin, rotated, out, lse;
    std::vector<std::int32_t> before{11, 0}, after, block_table{8, 1, 5, 3, 0, 2, 4, 7};
};

TEST(AppendForward, HasTheBitsOfTheTwoCalls) {
    for (const std::int64_t queries : {1, 3, 20})
        for (const bool rotates : {false, true})
            for (const bool keeps_rotated : {false, true})
                for (const int threads : {1, 3}) {
                    if (keeps_rotated && !rotates) continue;
                    SCOPED_TRACE(std::to_string(queries) + " queries, rotated " + std::to_string(rotates));
                    const options o = {.causal = true, .threads = threads};

                    Memory two(queries);
                    append_args a = two.appended(rotates);
                    a.k_cache = two.pages(two.k_cache), a.v_cache = two.pages(two.v_cache);
                    a.block_table = two.table(), a.cache_seqlens = two.lengths(two.before);
                    if (rotates) a.q = two.rows(two.q, kHeads), a.q_out = two.rows(two.rotated, kHeads);
                    append_kv(o, a);
                    for (const std::int32_t length : two.before)
                        two.after.push_back(length + static_cast<std::int32_t>(queries));
                    options then = o;
                    then.block_table = two.table(), then.seqused_k = two.lengths(two.after);
                    forward(then, two.rows(rotates ? two.rotated : two.q, kHeads), two.pages(two.k_cache),
                            two.pages(two.v_cache), two.rows(two.out, kHeads),
                            view(two.lse.data(), fp32, {kBatch, kHeads, queries}));

                    Memory one(queries);
                    const std::vector<float> q = one.q;
                    append_args within = one.appended(rotates);
                    if (keeps_rotated) within.q_out = one.rows(one.rotated, kHeads);
                    options at_once = o;
                    at_once.block_table = one.table(), at_once.seqused_k = one.lengths(one.before);
                    append_forward(at_once, within, one.rows(one.q, kHeads), one.pages(one.k_cache),
                                   one.pages(one.v_cache), one.rows(one.out, kHeads),
                                   view(one.lse.data(), fp32, {kBatch, kHeads, queries}));
                    EXPECT_EQ(one.out, two.out);
                    EXPECT_EQ(one.lse, two.lse);
                    EXPECT_EQ(one.k_cache, two.k_cache);
                    EXPECT_EQ(one.v_cache, two.v_cache);
                    EXPECT_EQ(one.q, q) << "q is unchanged in memory";
                    if (keeps_rotated) {
                        EXPECT_EQ(one.rotated, two.rotated);
                    }
                }
}

}  // namespace
}  // namespace flashtile::unit
