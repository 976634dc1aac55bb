// dropout_test.cpp: the generator against its published vectors, the mask against the oracle's own, its statistics, and
// that forward and backward apply that very mask on every instruction set.
#include <gtest/gtest.h>

#include <cmath>

#include "oracle/philox.h"
#include "shared/philox.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::GuardedTensor;

std::vector<double> mask_of(double p, std::uint64_t seed, std::uint64_t offset, std::vector<std::int64_t> shape,
                            device where = cpu, shard_origin origin = {}, const std::vector<double>& origins_i = {},
                            const std::vector<double>& origins_j = {}) {
    GuardedTensor keep(boolean, std::move(shape), {.heads_before_rows = true, .row_gap = 3},
                       conformance::Guard::nan_bands, where);
    keep.upload();
    const auto list = [&](const std::vector<double>& values) {
        if (values.empty()) return GuardedTensor();
        GuardedTensor tensor(dtype::int64, {static_cast<std::int64_t>(values.size())}, {},
                             conformance::Guard::nan_bands, where);
        tensor.fill(values);
        tensor.upload();
        return tensor;
    };
    const GuardedTensor i = list(origins_i), j = list(origins_j);
    dropout_mask(
        {.dropout = p, .seed = seed, .offset = offset, .origin = origin, .origins_i = i.view(), .origins_j = j.view()},
        keep.view());
    keep.download();
    EXPECT_TRUE(keep.poison_intact());
    return keep.values();
}

TEST(Dropout, PhiloxKnownAnswers) {  // Random123's kat_vectors, philox4x32 with 7 rounds
    const auto expect = [](Philox counter, unsigned key0, unsigned key1, Philox answer) {
        const Philox got = philox4x32<7>(counter, key0, key1);
        for (int n = 0; n < 4; ++n) EXPECT_EQ(got.word[n], answer.word[n]);
    };
    expect({{0, 0, 0, 0}}, 0, 0, {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}});
    constexpr unsigned ones = 0xffffffff;
    expect({{ones, ones, ones, ones}}, ones, ones, {{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}});
    expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
           {{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}});
}

// Kernels step from one group to the next instead of asking for the group of every square.
TEST(Dropout, GroupsOfSquaresAreEvenlySpaced) {
    for (const unsigned at : {0u, 3u, 8u, 13u, 4096u, 0xFFFFFFE0u})
        for (const unsigned on : {0u, 1u, 2u, 5u, 6u}) {
            EXPECT_EQ(Dropout::row_group(at + on + 16), Dropout::row_group(at + on) + 8);
            EXPECT_EQ(Dropout::column_group(at + on + 16), Dropout::column_group(at + on) + 4);
        }
}

class DropoutMask : public OnTarget {};

INSTANTIATE_TEST_SUITE_P(, DropoutMask,
                         testing::Values(conformance::Target(isa::automatic), conformance::cuda_target()), target_name);

TEST_P(DropoutMask, IsTheOracles) {
    for (const double p : {0.1, 0.5, 0.75}) {
        constexpr std::uint64_t seed = 0x0123456789ABCDEF, offset = 0xFEDCBA9876543210;
        const std::int64_t batch = 3, heads = 5, rows = 37, cols = 283;
        const auto mask = mask_of(p, seed, offset, {batch, heads, rows, cols}, where());
        std::size_t n = 0;
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t i = 0; i < rows; ++i)
                    for (std::int64_t j = 0; j < cols; ++j)
                        ASSERT_EQ(mask[n++] != 0.0,
                                  oracle::dropout_draw(seed, offset, b, h, i, j) >= oracle::dropout_threshold(p))
                            << b << ' ' << h << ' ' << i << ' ' << j;
    }
}

TEST_P(DropoutMask, OfAShardIsPartOfTheWholes) {
    constexpr std::int64_t b = 3, h = 2, i = 77, j = 21;
    const auto mask = mask_of(0.4, 5, 6, {2, 3, 40, 50}, where(), {b, h, i, j});
    std::size_t n = 0;
    for (std::int64_t own_b = 0; own_b < 2; ++own_b)
        for (std::int64_t own_h = 0; own_h < 3; ++own_h)
            for (std::int64_t own_i = 0; own_i < 40; ++own_i)
                for (std::int64_t own_j = 0; own_j < 50; ++own_j)
                    ASSERT_EQ(mask[n++] != 0.0, oracle::dropout_draw(5, 6, b + own_b, h + own_h, i + own_i,
                                                                     j + own_j) >= oracle::dropout_threshold(0.4));
}

TEST_P(DropoutMask, OfSequencesThatAreShardsEachByItself) {
    const std::vector<double> origins_i = {77, 0, 4294967248}, origins_j = {0, 21, 1048575};
    for (const bool with_i : {true, false})
        for (const bool with_j : {true, false}) {
            const auto mask =
                mask_of(0.4, 5, 6, {3, 2, 40, 50}, where(), {3, 2, with_i ? 0 : 5, with_j ? 0 : 6},
                        with_i ? origins_i : std::vector<double>(), with_j ? origins_j : std::vector<double>());
            std::size_t n = 0;
            for (std::int64_t b = 0; b < 3; ++b)
                for (std::int64_t h = 0; h < 2; ++h)
                    for (std::int64_t i = 0; i < 40; ++i)
                        for (std::int64_t j = 0; j < 50; ++j) {
                            const auto at = static_cast<std::size_t>(b);
                            const auto i0 = with_i ? static_cast<std::int64_t>(origins_i[at]) : 5;
                            const auto j0 = with_j ? static_cast<std::int64_t>(origins_j[at]) : 6;
                            ASSERT_EQ(mask[n++] != 0.0, oracle::dropout_draw(5, 6, 3 + b, 2 + h, i0 + i, j0 + j) >=
                                                            oracle::dropout_threshold(0.4))
                                << b << ' ' << h << ' ' << i << ' ' << j;
                        }
        }
}

TEST(Dropout, OriginsOfOtherThanTheMasksSequencesAreRefused) {
    try {
        mask_of(0.4, 5, 6, {3, 2, 40, 50}, cpu, {}, {1, 2});
        FAIL() << "two origins were accepted for three sequences";
    } catch (const error& e) {
        EXPECT_NE(std::string(e.what()).find("origins_i.shape is (2)"), std::string::npos) << e.what();
    }
}

// A kept share within 5 standard deviations of 1 - p, over the whole and over every row and column.
TEST(Dropout, KeepsTheShareThatIsAskedFor) {
    const std::int64_t rows = 512, cols = 512;
    for (const double p : {0.0, 1.0 / 65536.0, 0.1, 0.5, 0.9}) {
        const auto mask = mask_of(p, 42, 7, {1, 2, rows, cols});
        const auto expect_share = [&](double kept, double count, const std::string& of) {
            EXPECT_LE(std::abs(kept - (1.0 - p) * count), 5.0 * std::sqrt(count * p * (1.0 - p))) << of << ", p " << p;
        };
        double all = 0.0;
        std::vector<double> row(static_cast<std::size_t>(rows)), col(static_cast<std::size_t>(cols));
        for (std::size_t n = 0; n < mask.size(); ++n) {
            all += mask[n];
            row[n / static_cast<std::size_t>(cols) % static_cast<std::size_t>(rows)] += mask[n];
            col[n % static_cast<std::size_t>(cols)] += mask[n];
        }
        expect_share(all, static_cast<double>(mask.size()), "all");
        if (p * 2 * cols < 20) continue;  // too few drops in a row for a normal law
        for (std::size_t n = 0; n < row.size(); ++n) expect_share(row[n], 2 * cols, "row " + std::to_string(n));
        for (std::size_t n = 0; n < col.size(); ++n) expect_share(col[n], 2 * rows, "column " + std::to_string(n));
    }
}

// Elements of one Philox call, neighbours, heads, sequences, seeds and offsets agree as often as independent coins do.
TEST(Dropout, DrawsAreIndependent) {
    const std::int64_t n = 256;
    const auto agreement = [&](const std::vector<double>& a, const std::vector<double>& b, const char* what) {
        double same = 0.0;
        for (std::size_t at = 0; at < a.size(); ++at) same += a[at] == b[at] ? 1.0 : 0.0;
        const auto count = static_cast<double>(a.size());
        EXPECT_LE(std::abs(same - count / 2), 5.0 * std::sqrt(count) / 2) << what;
    };
    const auto whole = mask_of(0.5, 1, 0, {2, 2, n, n});
    const auto plane = [&](int b, int h) {
        const auto first = whole.begin() + (b * 2 + h) * n * n;
        return std::vector<double>(first, first + n * n);
    };
    agreement(plane(0, 0), plane(0, 1), "heads");
    agreement(plane(0, 0), plane(1, 0), "sequences");
    agreement(plane(0, 1), plane(1, 0), "head and sequence");
    agreement(whole, mask_of(0.5, 2, 0, {2, 2, n, n}), "seeds");
    agreement(whole, mask_of(0.5, 1, 1, {2, 2, n, n}), "offsets");
    agreement(whole, mask_of(0.5, std::uint64_t{1} << 32 | 1, 0, {2, 2, n, n}), "high halves of the seed");
    agreement(whole, mask_of(0.5, 1, std::uint64_t{1} << 32, {2, 2, n, n}), "high halves of the offset");
    const auto shifted = [&](std::int64_t di, std::int64_t dj) {
        std::vector<double> a, b;
        for (std::int64_t i = 0; i + di < n; ++i)
            for (std::int64_t j = 0; j + dj < n; ++j) {
                a.push_back(whole[static_cast<std::size_t>(i * n + j)]);
                b.push_back(whole[static_cast<std::size_t>((i + di) * n + j + dj)]);
            }
        agreement(a, b, ("shift " + std::to_string(di) + "," + std::to_string(dj)).c_str());
    };
    for (const auto& [di, dj] : {std::pair{0, 1}, {0, 8}, {0, 9}, {8, 0}, {8, 1}, {8, 8}, {1, 0}, {16, 0}, {0, 16}})
        shifted(di, dj);
}

// With v the identity, out is P after dropout; with dout the identity, dv is its transpose.
class DropoutApplied : public OnTarget {};

TEST_P(DropoutApplied, ForwardAndBackwardUseTheMask) {
    const std::int64_t n = 104;  // rows, keys and columns of v: a multiple of 8, which Hopper's kernels ask for
    conformance::Case c;
    c.batch = c.heads = c.kv_heads = 2;
    c.seqlen_q = c.seqlen_k = c.head_dim_v = n;
    c.seed = 99;
    c.offset = std::uint64_t{5} << 32 | 3;
    for (const double p : {0.4, 0.9}) {
        c.dropout = p;
        const auto mask = mask_of(c.dropout, c.seed, c.offset, {2, 2, n, n});
        each_type([&](dtype type) {
            for (const int threads : {1, 3}) {
                c.type = type;
                c.threads = threads;
                conformance::ProblemData data(c, where());
                for (GuardedTensor* t : {&data.v, &data.dout})
                    for (std::size_t at = 0; at < t->size(); ++at) {
                        const auto col = at % static_cast<std::size_t>(n);
                        const auto row = at / static_cast<std::size_t>(2 * n) % static_cast<std::size_t>(n);
                        t->set(at, row == col ? 1.0 : 0.0);
                    }
                const Outputs r = run(data, data.options(which()));
                for (std::int64_t b = 0; b < 2; ++b)
                    for (std::int64_t h = 0; h < 2; ++h)
                        for (std::int64_t i = 0; i < n; ++i)
                            for (std::int64_t j = 0; j < n; ++j) {
                                const auto bnhd = [&](std::int64_t row, std::int64_t col) {
                                    return static_cast<std::size_t>(((b * n + row) * 2 + h) * n + col);
                                };
                                const bool keep = mask[static_cast<std::size_t>(((b * 2 + h) * n + i) * n + j)] != 0.0;
                                ASSERT_EQ(r.out[bnhd(i, j)] != 0.0, keep) << b << ' ' << h << ' ' << i << ' ' << j;
                                ASSERT_EQ(r.dv[bnhd(j, i)] != 0.0, keep) << b << ' ' << h << ' ' << i << ' ' << j;
                            }
            }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(, DropoutApplied, testing::ValuesIn(all_targets()), target_name);

TEST(Dropout, LseIsOfTheUndroppedSoftmax) {
    conformance::Case c;
    c.seqlen_q = c.seqlen_k = 60;
    const Outputs without = run(c, isa::automatic);
    c.dropout = 0.5;
    EXPECT_EQ(run(c, isa::automatic).lse, without.lse);
}

}  // namespace
}  // namespace flashtile::unit
