// attend_cache_test.cpp: `flashtile attend` on caches, paged and dense, with what serving asks for beside: lengths,
// padding, trees, sinks, chunks. What no sequence uses of a cache holds NaN.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

using oracle::Precision;
using oracle::Problem;

const Sizes sizes{.seqlen_q = 5};  // 2 sequences, of 53 keys that may be used

// Heads before rows, as page-head-row caches have them.
Tensor heads_first(const Tensor& t) {
    const auto size = [&](int n) { return t.shape[static_cast<std::size_t>(n)]; };
    Tensor result{t.dtype, {size(0), size(2), size(1), size(3)}, {}};
    for (std::int64_t page = 0; page < size(0); ++page)
        for (std::int64_t h = 0; h < size(2); ++h)
            for (std::int64_t j = 0; j < size(1); ++j) {
                const auto from = t.values.begin() + ((page * size(1) + j) * size(2) + h) * size(3);
                result.values.insert(result.values.end(), from, from + size(3));
            }
    return result;
}

class AttendCache : public testing::Test {
protected:
    // Keys in pages of 16 that a table of random order names, of which each sequence has one more than it uses.
    void pages() {
        const std::int64_t page = 16, most = 4;
        std::vector<double> table(static_cast<std::size_t>(sizes.batch * (most + 1)));
        std::iota(table.begin(), table.end(), 1.0);  // page 0 is nobody's
        std::shuffle(table.begin(), table.end(), std::mt19937(3));
        const auto place = [&](std::int64_t b, std::int64_t j) {
            return static_cast<std::int64_t>(table[static_cast<std::size_t>(b * (most + 1) + j / page)]) * page +
                   j % page;
        };
        const std::int64_t count = static_cast<std::int64_t>(table.size()) + 1;
        k_ = cache(problem_, problem_.k, {count, page}, sizes.head_dim, place);
        v_ = cache(problem_, problem_.v, {count, page}, sizes.head_dim_v, place);
        table[static_cast<std::size_t>(most)] = -1.0;  // never read
        write("table.npy", {"int64", {sizes.batch, most + 1}, table});
        add({"--block-table", folder_.file("table.npy")});
    }

    // In rows of a cache of three: row 2 - b, or b.
    void rows(bool named) {
        const std::int64_t length = 60;
        const auto place = [&](std::int64_t b, std::int64_t j) { return (named ? 2 - b : b) * length + j; };
        k_ = cache(problem_, problem_.k, {3, length}, sizes.head_dim, place);
        v_ = cache(problem_, problem_.v, {3, length}, sizes.head_dim_v, place);
        if (named) add({"--cache-batch-idx=2,1"});
    }

    // What the sequences use of their 53 keys.
    void use(const std::vector<std::int64_t>& keys) {
        for (std::size_t b = 0; b < keys.size(); ++b) problem_.sequences[b].k_length = keys[b];
        add({fmt::format("--seqused-k={}", fmt::join(keys, ","))});
    }

    void add(const Command& flags) { flags_.insert(flags_.end(), flags.begin(), flags.end()); }
    void write(const char* name, const Tensor& tensor) const { write_npy(folder_.file(name), tensor); }

    Sizes sizes_of_v() const {
        Sizes result = sizes;
        result.head_dim_v = problem_.head_dim_v;
        return result;
    }

    std::string order() const {
        const std::string of_rows = heads_first_ ? "hsd" : "shd";
        return packed_ ? of_rows : "b" + of_rows;
    }

    Ending attend() {
        const std::array<std::int64_t, 4> queries = {packed_ ? 1 : 2, packed_ ? 10 : 5, sizes.heads, sizes.head_dim};
        write("q.npy", arrange(problem_.q, queries, order()));
        const Arranged files = arrange(problem_, sizes_of_v());
        const auto stored = [&](const Tensor& cache) { return heads_first_ ? heads_first(cache) : cache; };
        write("k.npy", k_.values.empty() ? files.k : stored(k_));
        write("v.npy", v_.values.empty() ? files.v : stored(v_));
        Command command = {
            "attend", "--q", folder_.file("q.npy"), "--out", folder_.file("out.npy"), "--lse", folder_.file("lse.npy")};
        const std::string of = k_.values.empty() ? "--" : "--cache-";
        command.insert(command.end(), {of + "k", folder_.file("k.npy")});
        if (!latent_) command.insert(command.end(), {of + "v", folder_.file("v.npy")});
        command.insert(command.end(), flags_.begin(), flags_.end());
        return flashtile(command);
    }

    void expect_right_result() {
        const Ending ending = attend();
        ASSERT_EQ(ending.exit_code, 0) << ending.err;
        Sizes result = sizes_of_v();
        if (packed_) result.batch = 1, result.seqlen_q = 10;
        expect_right(problem_, result, order(), Precision::fp32, read_npy(folder_.file("out.npy")),
                     read_npy(folder_.file("lse.npy")));
    }

    // The ten queries as so many of each sequence.
    void pack(std::int64_t first, std::int64_t second) {
        packed_ = true;
        problem_.sequences[0].q_length = first;
        problem_.sequences[1].q_begin = first;
        problem_.sequences[1].q_length = second;
        add({fmt::format("--cu-seqlens-q=0,{},{}", first, first + second)});
    }

    void put_heads_first() {
        heads_first_ = true;
        add({"--layout=bhsd"});
    }

    // V is the first 16 columns of K.
    void look_at_keys() {
        latent_ = true;
        problem_.head_dim_v = 16;
        problem_.v.clear();
        for (auto row = problem_.k.begin(); row != problem_.k.end(); row += sizes.head_dim)
            problem_.v.insert(problem_.v.end(), row, row + 16);
        add({"--head-dim-v=16"});
    }

    TemporaryFolder folder_;
    Problem problem_ = random_problem(sizes);
    Tensor k_{"fp32", {}, {}}, v_{"fp32", {}, {}};
    Command flags_;
    bool packed_ = false, latent_ = false, heads_first_ = false;
};

TEST_F(AttendCache, Pages) {
    use({53, 18});
    pages();
    expect_right_result();
}

TEST_F(AttendCache, RowsOfACacheThatIsLargerThanTheBatch) {
    use({40, 53});
    rows(false);
    expect_right_result();
}

TEST_F(AttendCache, RowsByNumber) {
    use({1, 52});
    rows(true);
    expect_right_result();
}

TEST_F(AttendCache, CausalWindowsChunksAndPaddingOnPages) {
    use({53, 18});
    pages();
    add({"--causal", "--window=30,-1", "--attention-chunk=9", "--first-k=2,16"});
    problem_.causal = true;
    problem_.window_left = 30;
    problem_.chunk = 9;
    problem_.sequences[0].first_k = 2;
    problem_.sequences[1].first_k = 16;
    expect_right_result();
}

TEST_F(AttendCache, SequencesThatAreShards) {
    use({53, 18});
    pages();
    write("i.npy", {"int32", {2}, {7.0, 4000000.0}});
    add({"--causal", "--diagonals=-30,4", "--dropout=0.3", "--seed=5", "--origins-i", folder_.file("i.npy"),
         "--origins-j=4000000000,0"});
    problem_.causal = true;
    problem_.dropout = 0.3;
    problem_.seed = 5;
    problem_.sequences[0].diagonal = -30;
    problem_.sequences[1].diagonal = 4;
    problem_.sequences[0].origin_i = 7;
    problem_.sequences[1].origin_i = 4000000;
    problem_.sequences[0].origin_j = 4000000000;
    expect_right_result();
}

TEST_F(AttendCache, PackedQueriesOnPages) {
    use({53, 18});
    pages();
    pack(9, 1);
    add({"--causal"});
    problem_.causal = true;
    expect_right_result();
}

TEST_F(AttendCache, PackedQueriesOnRows) {
    use({1, 52});
    rows(false);
    pack(3, 7);
    expect_right_result();
}

TEST_F(AttendCache, PackedQueriesOnRowsByNumber) {
    use({40, 53});
    rows(true);
    pack(0, 10);
    expect_right_result();
}

TEST_F(AttendCache, ValuesThatAreColumnsOfTheKeys) {
    use({53, 18});
    pages();
    look_at_keys();
    expect_right_result();
}

TEST_F(AttendCache, ValuesThatAreColumnsOfTheKeysWithoutACache) {
    look_at_keys();
    expect_right_result();
}

TEST_F(AttendCache, ListsWithoutACache) {
    use({53, 7});
    add({"--first-k=11,0", "--seqused-q=5,2", "--causal"});
    problem_.causal = true;
    problem_.sequences[0].first_k = 11;
    problem_.sequences[1].q_length = 2;
    const Ending ending = attend();
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    // Rows past seqused_q are 0.
    expect_right(problem_, sizes, "bshd", Precision::fp32, read_npy(folder_.file("out.npy")));
    const Tensor lse = read_npy(folder_.file("lse.npy"));
    for (std::int64_t h = 0; h < sizes.heads; ++h)
        for (std::int64_t i = 0; i < 5; ++i)
            EXPECT_EQ(lse.values[static_cast<std::size_t>((sizes.heads + h) * 5 + i)] == 0.0, i >= 2);
}

TEST_F(AttendCache, SinksAndATreeWithPositions) {
    use({53, 18});
    pages();
    problem_.sinks = {0.5, -1.0, 2.0, 0.0, 1.0, 3.0};
    write("sinks.npy", {"fp64", {sizes.heads}, problem_.sinks});
    problem_.tree = {{1, 1, 5, 5}, {1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1}};
    write("tree.npy", {"bool", {5, 5}, problem_.tree.values});
    problem_.positions = {48, 49, 49, 50, 50, 13, 14, 14, 15, 15};
    write("positions.npy", {"int32", {2, 5}, problem_.positions});
    problem_.window_left = 20;
    add({"--sinks", folder_.file("sinks.npy"), "--tree-mask", folder_.file("tree.npy"), "--positions",
         folder_.file("positions.npy"), "--window=20,-1"});
    expect_right_result();
}

TEST_F(AttendCache, PrefixesThatSequencesShare) {
    use({53, 40});
    // Sequence 1 has the first 32 keys of sequence 0, and its own table does not name them.
    const auto row = static_cast<std::ptrdiff_t>(sizes.kv_heads * sizes.head_dim),
               row_v = static_cast<std::ptrdiff_t>(sizes.kv_heads * sizes.head_dim_v);
    std::copy_n(problem_.k.begin(), 32 * row, problem_.k.begin() + 53 * row);
    std::copy_n(problem_.v.begin(), 32 * row_v, problem_.v.begin() + 53 * row_v);
    const auto place = [](std::int64_t b, std::int64_t j) { return j < 32 ? j : b * 64 + j; };
    k_ = cache(problem_, problem_.k, {8, 16}, sizes.head_dim, place);
    v_ = cache(problem_, problem_.v, {8, 16}, sizes.head_dim_v, place);
    write("table.npy", {"int32", {2, 4}, {0, 1, 2, 3, -7, 99, 6, 7}});
    add({"--block-table", folder_.file("table.npy"), "--prefix-groups=0,2", "--prefix-lengths=32"});
    expect_right_result();
}

TEST_F(AttendCache, PagesWithHeadsFirst) {
    use({53, 18});
    pages();
    put_heads_first();
    expect_right_result();
}

TEST_F(AttendCache, PackedQueriesWithHeadsFirst) {
    use({53, 18});
    pages();
    pack(2, 8);
    put_heads_first();
    expect_right_result();
}

TEST_F(AttendCache, BadInputIsRefusedByNameAndNothingIsWritten) {
    use({53, 18});
    pages();
    ASSERT_EQ(attend().exit_code, 0);
    std::filesystem::remove(folder_.file("out.npy"));
    std::filesystem::remove(folder_.file("lse.npy"));
    write("narrow.npy", {"int32", {2, 2}, {1, 2, 3, 4}});
    write("beyond.npy", {"int32", {2, 4}, {1, 2, 3, 11, 4, 5, 6, 7}});
    write("wide.npy", {"int64", {2}, {1.0, 4294967297.0}});
    write("cube.npy", {"int32", {1, 1, 1}, {1}});
    write("fp16.npy", {"fp16", k_.shape, k_.values});
    write("fp32.npy", {"fp32", {2}, {1, 2}});
    write("row.npy", {"fp32", {24}, std::vector<double>(24)});
    write("packed.npy", {"fp32", {10, sizes.heads, sizes.head_dim}, problem_.q});
    const auto before = folder_.names();
    const auto expect_refused = [&](const Command& flags, const std::string& message) {
        Command command = {"env", "-C", folder_.file(""), FLASHTILE_PROGRAM, "attend"};
        const auto unless_given = [&](const char* flag, const char* value) {
            if (std::find(flags.begin(), flags.end(), flag) == flags.end())
                command.insert(command.end(), {flag, value});
        };
        unless_given("--q", "q.npy"), unless_given("--cache-k", "k.npy"), unless_given("--out", "out.npy");
        if (std::ranges::none_of(flags, [](const auto& flag) { return flag.starts_with("--head-dim-v"); }))
            unless_given("--cache-v", "v.npy");
        command.insert(command.end(), flags.begin(), flags.end());
        const Ending ending = run(command);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
        EXPECT_EQ(folder_.names(), before);
    };
    const char *table = "--block-table", *name = "table.npy";
    expect_refused({table, "narrow.npy", "--seqused-k=53,18"}, "seqused_k[0] is 53, allowed is 0 to the sequence's 32");
    expect_refused({table, "beyond.npy", "--seqused-k=53,18"}, "block_table[0, 3] is 11, allowed is 0 to 10");
    expect_refused({table, name, "--seqused-k=65,18"}, "block_table[0, 4] is -1, allowed is 0 to 10");
    expect_refused({table, name, "--seqused-k=53"}, "seqused_k.shape is (1), allowed is (batch) = (2)");
    expect_refused({table, name, "--seqused-k=53,"}, "--seqused-k is 53,, allowed are numbers that fit 32 bits");
    expect_refused({table, name, "--seqused-k=-1,2"}, "seqused_k[0] is -1, allowed is 0 to");
    expect_refused({table, name, "--seqused-k=1,4294967297"}, "allowed are numbers that fit 32 bits");
    expect_refused({table, name, "--diagonals=1,9223372036854775808"}, "allowed are numbers that fit 64 bits");
    expect_refused({table, name, "--seqused-k=wide.npy"}, "wide.npy) holds 4294967297, allowed are numbers that fit");
    expect_refused({table, name, "--seqused-k=fp32.npy"}, "fp32.npy) holds fp32, allowed is int32 or int64");
    expect_refused({table, name, "--seqused-k=none.npy"}, "none.npy: cannot be opened");
    expect_refused({table, name, "--first-k=-1,0"}, "first_k[0] is -1, allowed is 0 or more");
    expect_refused({table, name, "--cache-batch-idx=0,1"}, "cache_batch_idx is given with block_table");
    expect_refused({"--cache-batch-idx=0,11"}, "cache_batch_idx[1] is 11, allowed is 0 to 10");
    expect_refused({table, "cube.npy"}, "--block-table (cube.npy) has shape (1, 1, 1), allowed are one or two dim");
    expect_refused({table, name, "--cache-k", "row.npy"}, "--cache-k (row.npy) has shape (24,), allowed is (rows, s");
    expect_refused({table, name, "--cache-k", "fp16.npy"}, "--cache-k (fp16.npy) holds fp16 and --q fp32");
    expect_refused({table, name, "--seqused-k=53,18", "--sinks", "fp32.npy"},
                   "sinks.shape is (2), allowed is (heads) = (6)");
    expect_refused({table, name, "--tree-mask", "fp32.npy"}, "--tree-mask (fp32.npy) holds fp32, allowed is bool");
    expect_refused({table, name, "--positions", "narrow.npy"}, "positions is given without tree_mask");
    expect_refused({table, name, "--prefix-groups=0,2"}, "prefix_lengths");
    expect_refused({table, name, "--num-splits=-1"}, "num_splits is -1");
    expect_refused({table, name, "--num-splits=2", "--batch-invariant"}, "num_splits is 2");
    expect_refused({table, name, "--attention-chunk=-1"}, "attention_chunk is -1");
    expect_refused({table, name, "--out", name},
                   "--out is table.npy, allowed is another file than that of --block-table");
    const char *q = "--q", *packed = "packed.npy", *used = "--seqused-k=53,18";
    expect_refused({table, name, used, "--cu-seqlens-q=0,3,10"},
                   "--q (q.npy) has shape (2, 5, 6, 24), allowed is (s of all sequences, h, d) beside --cu-seqlens-q");
    expect_refused({table, name, used, q, packed, "--cu-seqlens-q=0,3,11"},
                   "cu_seqlens_q[2] is 11, allowed is at most");
    expect_refused({table, name, used, q, packed, "--cu-seqlens-q=0,7,5"},
                   "cu_seqlens_q[2] is 5, allowed is no less than");
    expect_refused({table, name, used, q, packed, "--cu-seqlens-q=0,3,8,10"},
                   "block_table.shape is (2, 5), allowed is");
    expect_refused({table, name, "--head-dim-v=25"},
                   "--head-dim-v is 25, allowed is 1 to 24, the columns of --cache-k (k.npy)");
    expect_refused({table, name, "--head-dim-v=0"}, "is 0, allowed is a whole number of at least 1");
    expect_refused({table, name, "--head-dim-v=8", "--cache-v", "v.npy"}, "excludes --");
    expect_refused({"--k", "k.npy"}, "--k excludes --cache-k");
}

TEST_F(AttendCache, ItsFlagsNeedIt) {
    const Ending none = flashtile({"attend", "--q", "q.npy", "--out", "out.npy"});
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_NE(none.err.find("--k, or --cache-k, is required"), std::string::npos) << none.err;
    const Ending values = flashtile({"attend", "--q", "q.npy", "--cache-k", "k.npy", "--out", "out.npy"});
    EXPECT_EQ(values.exit_code, 2);
    EXPECT_NE(values.err.find("--cache-v, or --head-dim-v, is required"), std::string::npos) << values.err;
    const Ending packed =
        flashtile({"attend", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--out", "out.npy", "--cu-seqlens-q=0,2"});
    EXPECT_EQ(packed.exit_code, 2);
    EXPECT_NE(packed.err.find("--cu-seqlens-q requires --cache-k"), std::string::npos) << packed.err;
    const Ending table = flashtile(
        {"attend", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--out", "out.npy", "--block-table", "table.npy"});
    EXPECT_EQ(table.exit_code, 2);
    EXPECT_NE(table.err.find("--block-table requires --cache-k"), std::string::npos) << table.err;
}

}  // namespace
}  // namespace flashtile::tests
