// attend_append_test.cpp: `flashtile attend` that appends new keys and values to its cache first. What it wrote is
// judged by the rotation in fp64, and its result by attention to what it wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>

#include "attention_files.h"
#include "oracle/rotary.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

using oracle::Precision;

// 2 sequences of 20 and 11 keys, ten queries and ten new keys in all; pages of 8 keys.
const Sizes sizes{.seqlen_q = 5, .seqlen_k = 30};
const std::array<std::int64_t, 2> before = {20, 11};
constexpr std::int64_t page_size = 8, pages = 10, positions = 40, angles = 9;

std::int64_t place(std::int64_t b, std::int64_t j) {
    return (1 + 2 * (j / page_size) + b) * page_size + j % page_size;
}

std::string bytes_of(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

class AttendAppend : public testing::Test {
protected:
    AttendAppend() {
        for (std::size_t b = 0; b < 2; ++b) problem_.sequences[b].k_length = before[b];
        k_ = cache(problem_, problem_.k, {pages, page_size}, sizes.head_dim, place);
        v_ = cache(problem_, problem_.v, {pages, page_size}, sizes.head_dim_v, place);
        // Entry 4 of a sequence is behind its keys and never read.
        write("table.npy", {"int32", {2, 5}, {1, 3, 5, 7, -1, 2, 4, 6, 8, -1}});
        write("k.npy", k_), write("v.npy", v_);
        lengths(5, 5);
        for (std::int64_t p = 0; p < positions; ++p)
            for (std::int64_t n = 0; n < angles; ++n) {
                const double angle = static_cast<double>(p) * std::pow(100.0, -static_cast<double>(n) / angles);
                cos_.push_back(static_cast<float>(std::cos(angle)));
                sin_.push_back(static_cast<float>(std::sin(angle)));
            }
        write("cos.npy", {"fp64", {positions, angles}, cos_});
        write("sin.npy", {"fp64", {positions, angles}, sin_});
    }

    void write(const char* name, const Tensor& tensor) const { write_npy(folder_.file(name), tensor); }
    Tensor read(const char* name) const { return read_npy(folder_.file(name)); }

    // So many queries and new keys of each sequence.
    void lengths(std::int64_t first, std::int64_t second) {
        auto& s = problem_.sequences;
        s[0].q_length = first, s[1].q_length = second, s[1].q_begin = first;
        for (std::size_t b = 0; b < 2; ++b) s[b].k_length = before[b] + s[b].q_length;
    }

    // Columns of q, of the new keys or of the new values as their file has them.
    Tensor file(const std::vector<double>& values, std::int64_t heads, std::int64_t columns) const {
        if (packed_) return {"fp32", {10, heads, columns}, values};
        return {"fp32", {2, 5, heads, columns}, values};
    }
    std::vector<double> new_rows(const std::vector<double>& values, std::int64_t columns) const {
        std::vector<double> rows;
        const std::int64_t row = sizes.kv_heads * columns;
        for (std::size_t b = 0; b < 2; ++b) {
            const auto& s = problem_.sequences[b];
            rows.insert(rows.end(), values.begin() + (s.k_begin + before[b]) * row,
                        values.begin() + (s.k_begin + s.k_length) * row);
        }
        return rows;
    }

    Ending attend(Command flags) {
        write("q.npy", file(problem_.q, sizes.heads, sizes.head_dim));
        write("new_k.npy", file(new_rows(problem_.k, sizes.head_dim), sizes.kv_heads, sizes.head_dim));
        write("new_v.npy", file(new_rows(problem_.v, sizes.head_dim_v), sizes.kv_heads, sizes.head_dim_v));
        const Command always = {"env",     "-C",        folder_.file(""), FLASHTILE_PROGRAM, "attend",    "--q",
                                "q.npy",   "--cache-k", "k.npy",          "--block-table",   "table.npy", "--append-k",
                                append_k_, "--out",     "out.npy",        "--lse",           "lse.npy",   "--causal"};
        flags.insert(flags.begin(), always.begin(), always.end());
        if (!cache_k_out_.empty()) flags.insert(flags.end(), {"--cache-k-out", cache_k_out_});
        return run(flags);
    }

    // The exact rows of q, or of the new keys, at the positions that `position` says of row n of sequence b.
    using Position = std::function<std::int64_t(std::int64_t b, std::int64_t n)>;
    std::vector<double> rotated(const std::vector<double>& rows, std::int64_t heads, const Position& position) const {
        std::vector<double> result;
        for (std::size_t b = 0; b < 2; ++b)
            for (std::int64_t n = 0; n < problem_.sequences[b].q_length; ++n)
                for (std::int64_t h = 0; h < heads; ++h) {
                    const auto d = static_cast<std::size_t>(sizes.head_dim);
                    const auto angle = static_cast<std::size_t>(position(static_cast<std::int64_t>(b), n) * angles);
                    const auto row = oracle::rotate(std::span(rows).subspan(result.size(), d),
                                                    std::span(cos_).subspan(angle, angles),
                                                    std::span(sin_).subspan(angle, angles), begin_, interleaved_);
                    result.insert(result.end(), row.begin(), row.end());
                }
        return result;
    }

    static void expect_near(const std::vector<double>& got, const std::vector<double>& exact, double ulps) {
        ASSERT_EQ(got.size(), exact.size());
        for (std::size_t n = 0; n < got.size(); ++n)
            ASSERT_LE(std::abs(got[n] - exact[n]), ulps * oracle::ulp_at(exact[n], Precision::fp32)) << n;
    }

    // `written` is the cache `was` with these rows behind its sequences' keys, and nothing else has changed. The rows
    // that are there then become the problem's.
    void expect_appended(const Tensor& written, const Tensor& was, const std::vector<double>& rows, double ulps,
                         std::vector<double>& values) const {
        ASSERT_EQ(written.shape, was.shape);
        const std::int64_t row = was.shape[2] * was.shape[3];
        std::vector<double> appended, expected = was.values;
        for (std::size_t b = 0; b < 2; ++b)
            for (std::int64_t j = before[b]; j < problem_.sequences[b].k_length; ++j) {
                const auto at = place(static_cast<std::int64_t>(b), j) * row;
                const auto from = written.values.begin() + at;
                appended.insert(appended.end(), from, from + row);
                std::copy_n(from, row, expected.begin() + at);
                std::copy_n(from, row, values.begin() + (problem_.sequences[b].k_begin + j) * row);
            }
        expect_near(appended, rows, ulps);
        for (std::size_t n = 0; n < expected.size(); ++n)
            ASSERT_TRUE(written.values[n] == expected[n] || (std::isnan(written.values[n]) && std::isnan(expected[n])));
    }

    void expect_right_result() {
        problem_.causal = true;
        Sizes result = sizes;
        if (packed_) result.batch = 1, result.seqlen_q = 10;
        result.head_dim_v = problem_.head_dim_v;
        expect_right(problem_, result, packed_ ? "shd" : "bshd", Precision::fp32, read("out.npy"), read("lse.npy"));
    }

    // Runs it with rotation, new keys and queries alike at the positions given, and judges everything.
    void expect_right_rotation(Command flags, const Position& position) {
        const auto keys = rotated(new_rows(problem_.k, sizes.head_dim), sizes.kv_heads, position);
        const auto values = new_rows(problem_.v, sizes.head_dim_v);
        const auto queries = rotated(problem_.q, sizes.heads, position);
        flags.insert(flags.end(), {"--cache-v", "v.npy", "--append-v", "new_v.npy", "--cache-v-out", "v_out.npy",
                                   "--seqused-k=20,11", "--rotary-cos", "cos.npy", "--rotary-sin", "sin.npy", "--q-out",
                                   "q_out.npy"});
        const std::string cache_file = bytes_of(folder_.file("k.npy"));
        const Ending ending = attend(flags);
        ASSERT_EQ(ending.exit_code, 0) << ending.err;
        EXPECT_EQ(bytes_of(folder_.file("k.npy")), cache_file);
        expect_appended(read("k_out.npy"), k_, keys, 1.5, problem_.k);
        expect_appended(read("v_out.npy"), v_, values, 0.0, problem_.v);
        const Tensor q_out = read("q_out.npy");
        EXPECT_EQ(q_out.shape, read("q.npy").shape);
        expect_near(q_out.values, queries, 1.5);
        problem_.q = q_out.values;
        expect_right_result();
    }

    TemporaryFolder folder_;
    oracle::Problem problem_ = random_problem(sizes);
    Tensor k_, v_;
    std::vector<double> cos_, sin_;
    std::string append_k_ = "new_k.npy", cache_k_out_ = "k_out.npy";
    bool packed_ = false, interleaved_ = false;
    std::int64_t begin_ = 0;
};

TEST_F(AttendAppend, NewKeysAndQueriesAreRotatedByTheirPlaces) {
    expect_right_rotation({},
                          [](std::int64_t b, std::int64_t n) { return before.at(static_cast<std::size_t>(b)) + n; });
}

TEST_F(AttendAppend, PackedWithOffsetsInPairsFromAColumnOn) {
    packed_ = interleaved_ = true;
    begin_ = 5;
    lengths(1, 9);
    expect_right_rotation({"--cu-seqlens-q=0,1,10", "--cu-seqlens-k-new=0,1,10", "--rotary-interleaved",
                           "--rotary-begin=5", "--rotary-offsets=30,2"},
                          [](std::int64_t b, std::int64_t n) { return (b == 0 ? 30 : 2) + n; });
}

TEST_F(AttendAppend, PositionsThatAreGiven) {
    const auto position = [](std::int64_t b, std::int64_t n) { return 7 * n + 3 * b; };
    write("positions.npy", {"int64", {2, 5}, {0, 7, 14, 21, 28, 3, 10, 17, 24, 31}});
    expect_right_rotation({"--append-positions", "positions.npy", "--positions-q", "positions.npy"}, position);
}

TEST_F(AttendAppend, LatentKeysWithoutRotation) {
    const auto keys = new_rows(problem_.k, sizes.head_dim);
    const Ending ending = attend({"--head-dim-v=16", "--seqused-k=20,11"});
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_appended(read("k_out.npy"), k_, keys, 0.0, problem_.k);
    problem_.head_dim_v = 16;
    problem_.v.clear();
    for (auto row = problem_.k.begin(); row != problem_.k.end(); row += sizes.head_dim)
        problem_.v.insert(problem_.v.end(), row, row + 16);
    expect_right_result();

    // The cache's file is not written to where nobody asks for the new cache, either.
    const std::string result = bytes_of(folder_.file("out.npy")), cache_file = bytes_of(folder_.file("k.npy"));
    cache_k_out_ = "";
    const Ending alone = attend({"--head-dim-v=16", "--seqused-k=20,11"});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_EQ(bytes_of(folder_.file("out.npy")), result);
    EXPECT_EQ(bytes_of(folder_.file("k.npy")), cache_file);
}

TEST_F(AttendAppend, BadInputIsRefusedByNameAndNothingIsWritten) {
    write("short.npy", {"fp32", {14, angles}, std::vector<double>(14 * angles, 0.5)});
    write("heads.npy", {"fp32", {2, 5, 3, sizes.head_dim}, std::vector<double>(30 * 24, 0.5)});
    write("fp16.npy", {"fp16", {2, 5, 2, sizes.head_dim}, std::vector<double>(20 * 24, 0.5)});
    write("row.npy", {"fp32", {24}, std::vector<double>(24)});
    const std::string cache_file = bytes_of(folder_.file("k.npy"));
    const auto expect_refused = [&](const Command& flags, const std::string& message) {
        const Ending ending = attend(flags);
        EXPECT_EQ(ending.exit_code, 2) << message;
        EXPECT_NE(ending.err.find(message), std::string::npos) << ending.err;
        for (const char* result : {"out.npy", "lse.npy", "k_out.npy"})
            EXPECT_FALSE(std::filesystem::exists(folder_.file(result))) << message;
        EXPECT_EQ(bytes_of(folder_.file("k.npy")), cache_file);
    };
    const auto with = [](Command flags) {
        flags.insert(flags.begin(), {"--cache-v", "v.npy", "--append-v", "new_v.npy"});
        return flags;
    };
    const char *used = "--seqused-k=20,11", *cos = "--rotary-cos", *sin = "--rotary-sin";
    expect_refused(with({}), "--append-k requires --seqused-k");
    expect_refused({"--cache-v", "v.npy", used}, "--append-v is required");
    expect_refused({"--head-dim-v=8", "--append-v", "new_v.npy", used}, "--append-v requires --cache-v");
    expect_refused({"--head-dim-v=8", "--cache-v-out", "v_out.npy", used}, "--cache-v-out requires --cache-v");
    expect_refused(with({used, cos, "cos.npy"}), "--rotary-cos requires --rotary-sin");
    expect_refused(with({used, "--q-out", "q_out.npy"}), "--q-out requires --rotary-cos");
    expect_refused(with({"--seqused-k=20,36"}), "append: cache_seqlens[1] is 36, allowed is at most 35");
    expect_refused(with({"--seqused-k=20,28"}), "block_table[1, 4] is -1, allowed is 0 to 9");
    expect_refused(with({used, cos, "short.npy", sin, "short.npy"}),
                   "cache_seqlens[0] is 20, allowed is 0 to 9: rotary_cos");
    expect_refused(with({used, cos, "cos.npy", sin, "short.npy"}), "rotary_sin.shape is (14, 9), allowed is");
    expect_refused(with({used, cos, "table.npy", sin, "sin.npy"}), "--rotary-cos (table.npy) holds int32, allowed is");
    expect_refused(with({used, cos, "cos.npy", sin, "sin.npy", "--rotary-begin=24"}), "rotary_begin is 24, allowed is");
    expect_refused(with({used, "--cu-seqlens-k-new=0,5,10"}),
                   "--append-k (new_k.npy) has shape (2, 5, 2, 24), allowed is (s of all sequences, h, d) beside "
                   "--cu-seqlens-k-new");
    append_k_ = "heads.npy";
    expect_refused(with({used}), "append: v.shape is (2, 5, 2, 40), allowed is");
    append_k_ = "fp16.npy";
    expect_refused(with({used}), "--append-k (fp16.npy) holds fp16 and --q fp32: say with --dtype");
    append_k_ = "row.npy";
    expect_refused(with({used}), "--append-k (row.npy) has shape (24,), allowed is (s, d), (s, h, d) or (b, s, h, d)");
    append_k_ = "";
    expect_refused(with({used}), "--append-k: is '', allowed is the name of a file");
    append_k_ = "new_k.npy", cache_k_out_ = "k.npy";
    expect_refused(with({used}), "--cache-k-out is k.npy, allowed is another file than that of --cache-k");
    cache_k_out_ = "out.npy";
    expect_refused(with({used}), "--cache-k-out is out.npy, allowed is another file than that of --out");
}

}  // namespace
}  // namespace flashtile::tests
