// merge_test.cpp: partial results merged on every instruction set and on CUDA, beside fp64: every type, layout and
// number of parts; in place; empty parts and parts that are no numbers; and a problem that was split by its keys.
#include <cmath>
#include <limits>

#include "conformance/random_source.h"
#include "oracle/merge.h"
#include "oracle/precision.h"
#include "oracle/tolerance.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::Layout;
using conformance::ProblemData;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

oracle::Precision precision_of(dtype type) {
    return type == fp32 ? oracle::Precision::fp32 : type == fp16 ? oracle::Precision::fp16 : oracle::Precision::bf16;
}

struct Sizes {
    std::int64_t parts, batch, seqlen, heads, head_dim;
    bool packed = false;

    std::vector<std::int64_t> out() const {
        if (packed) return {seqlen, heads, head_dim};
        return {batch, seqlen, heads, head_dim};
    }
    std::vector<std::int64_t> lse() const {
        if (packed) return {heads, seqlen};
        return {batch, heads, seqlen};
    }
    std::vector<std::int64_t> of_parts(std::vector<std::int64_t> shape) const {
        shape.insert(shape.begin(), parts);
        return shape;
    }
};

// The tensors of a merge, and the same numbers for the oracle.
struct Merge {
    Merge(const Sizes& s, dtype type, dtype out_type, device where, Layout layout = {})
        : sizes(s),
          outs(type, s.of_parts(s.out()), layout, conformance::Guard::nan_bands, where),
          lses(fp32, s.of_parts(s.lse()), {}, conformance::Guard::nan_bands, where),
          out(out_type, s.out(), layout, conformance::Guard::nan_bands, where),
          lse(fp32, s.lse(), {}, conformance::Guard::nan_bands, where) {
        conformance::RandomSource random(static_cast<std::uint64_t>(s.parts * 1000 + s.head_dim));
        for (std::size_t n = 0; n < outs.size(); ++n) outs.set(n, random.normal());
        for (std::size_t n = 0; n < lses.size(); ++n) lses.set(n, 10.0 * random.normal());
    }

    std::size_t rows() const { return lse.size(); }
    // Element c of row `row` of lse, in a part's out.
    std::size_t element(std::size_t row, std::int64_t c = 0) const {
        const auto n = static_cast<std::int64_t>(row);
        const std::int64_t b = n / (sizes.heads * sizes.seqlen), h = n / sizes.seqlen % sizes.heads,
                           i = n % sizes.seqlen;
        return static_cast<std::size_t>(((b * sizes.seqlen + i) * sizes.heads + h) * sizes.head_dim + c);
    }
    void set_out(std::size_t part, std::size_t row, double value) {
        for (std::int64_t c = 0; c < sizes.head_dim; ++c) outs.set(part * out.size() + element(row, c), value);
    }
    void set_lse(std::size_t part, std::size_t row, double value) { lses.set(part * rows() + row, value); }
    // A part that counts for nothing, with bits that would spoil everything.
    void make_empty(std::size_t part, std::size_t row) {
        set_lse(part, row, -kInfinity);
        set_out(part, row, row % 2 == 0 ? kNan : kInfinity);
    }

    void run(const flashtile::options& o) {
        for (GuardedTensor* t : {&outs, &lses, &out, &lse}) t->upload();
        merge(o, outs.view(), lses.view(), out.view(), lse.view());
        for (GuardedTensor* t : {&outs, &lses, &out, &lse}) t->download();
    }

    oracle::Merged reference() const {
        return oracle::merge(
            {sizes.parts, sizes.batch, sizes.seqlen, sizes.heads, sizes.head_dim, outs.values(), lses.values()});
    }

    Sizes sizes;
    GuardedTensor outs, lses, out, lse;
};

// Weights have an error of some units of fp32, and the sums one more for each part.
void expect_merged(const Merge& m, dtype out_type) {
    const oracle::Merged expected = m.reference();
    const double unit = 0x1p-24 * static_cast<double>(12 + 2 * m.sizes.parts);
    std::size_t wrong = 0;
    for (std::size_t n = 0; n < m.out.size(); ++n) {
        const double half_ulp = 0.5 * oracle::ulp_at(std::abs(expected.out[n]), precision_of(out_type));
        if (!(std::abs(m.out.get(n) - expected.out[n]) <= unit * expected.terms[n] + 1.001 * half_ulp)) ++wrong;
    }
    EXPECT_EQ(wrong, 0U) << "of " << m.out.size() << " elements of out";
    wrong = 0;
    for (std::size_t n = 0; n < m.lse.size(); ++n) {
        if (m.lse.get(n) == expected.lse[n]) continue;  // infinities
        if (!(std::abs(m.lse.get(n) - expected.lse[n]) <= oracle::allowed_lse_error(0.0, std::abs(expected.lse[n]))))
            ++wrong;
    }
    EXPECT_EQ(wrong, 0U) << "of " << m.lse.size() << " elements of lse";
}

class Merging : public OnTarget {
protected:
    static flashtile::options options(int threads = 0) {
        flashtile::options o;
        o.threads = threads;
        o.isa = which();
        return o;
    }
};

TEST_P(Merging, IsTheOracles) {
    const Sizes list[] = {{1, 1, 1, 1, 1},   {2, 2, 33, 3, 64}, {3, 1, 70, 2, 57},       {9, 2, 17, 5, 128},
                          {2, 1, 9, 2, 512}, {33, 1, 5, 4, 40}, {4, 1, 61, 3, 96, true}, {130, 1, 3, 2, 8}};
    Layout gaps;
    gaps.row_gap = 3;
    Layout turned;
    turned.heads_before_rows = true;
    each_type([&](dtype type) {
        for (const dtype out_type : kTypes)
            for (const Sizes& sizes : list)
                for (const Layout& layout : {Layout(), gaps, turned}) {
                    SCOPED_TRACE(std::to_string(sizes.parts) + " parts, d " + std::to_string(sizes.head_dim));
                    Merge m(sizes, type, out_type, where(), layout);
                    for (std::size_t row = 0; row < m.rows(); row += 3)  // also in all parts of a row
                        for (std::size_t part = row % 2; part < static_cast<std::size_t>(sizes.parts);
                             part += 1 + row % 2)
                            m.make_empty(part, row);
                    m.outs.remember(), m.lses.remember();
                    m.run(options());
                    expect_merged(m, out_type);
                    EXPECT_TRUE(m.outs.unchanged() && m.lses.unchanged());
                    EXPECT_TRUE(m.out.poison_intact() && m.lse.poison_intact());
                }
    });
}

TEST_P(Merging, KeepsALonePartsBits) {
    each_type([](dtype type) {
        Merge m({3, 1, 40, 2, 72}, type, type, where());
        for (std::size_t row = 0; row < m.rows(); ++row)
            for (std::size_t part = 0; part < 3; ++part)
                if (part != row % 3) m.make_empty(part, row);
        m.set_out(0, 0, -0.0);
        m.set_out(1, 1, 0x1p-24);  // subnormal in fp16
        m.run(options());
        for (std::size_t row = 0; row < m.rows(); ++row) {
            EXPECT_EQ(m.lse.get(row), m.lses.get(row % 3 * m.rows() + row));
            for (std::int64_t c = 0; c < 72; ++c) {
                const double got = m.out.get(m.element(row, c));
                const double part = m.outs.get(row % 3 * m.out.size() + m.element(row, c));
                EXPECT_EQ(got, part);
                EXPECT_EQ(std::signbit(got), std::signbit(part));
            }
        }
    });
}

TEST_P(Merging, OfNothingIsAnEmptyRow) {
    each_type([](dtype type) {
        Merge m({2, 2, 3, 2, 16}, type, type, where());
        for (std::size_t row = 0; row < m.rows(); ++row) m.make_empty(0, row), m.make_empty(1, row);
        m.run(options());
        EXPECT_EQ(m.out.values(), std::vector<double>(m.out.size(), 0.0));
        EXPECT_EQ(m.lse.values(), std::vector<double>(m.lse.size(), -kInfinity));
        Merge none({0, 2, 3, 2, 16}, type, type, where());
        none.run(options());
        EXPECT_EQ(none.out.values(), m.out.values());
        EXPECT_EQ(none.lse.values(), m.lse.values());
        const tensor nowhere = view(nullptr, type, none.sizes.of_parts(none.sizes.out()), where()),
                     nowhere_lse = view(nullptr, fp32, none.sizes.of_parts(none.sizes.lse()), where());
        merge(options(), nowhere, nowhere_lse, none.out.view(), none.lse.view());
        EXPECT_EQ(none.out.values(), m.out.values());
    });
}

TEST_P(Merging, NonFinitePartsGiveNonFiniteResults) {
    each_type([](dtype type) {
        Merge m({3, 1, 5, 1, 24}, type, type, where());
        m.set_lse(1, 0, kNan);
        m.set_lse(0, 1, kInfinity);
        m.set_lse(2, 2, kNan), m.set_lse(0, 2, kInfinity);
        m.set_lse(0, 3, kNan), m.set_lse(1, 3, -kInfinity), m.set_lse(2, 3, -kInfinity);
        m.set_lse(1, 4, 0.0), m.set_out(1, 4, kInfinity);
        m.run(options());
        EXPECT_TRUE(std::isnan(m.lse.get(0)));
        EXPECT_EQ(m.lse.get(1), kInfinity);
        EXPECT_TRUE(std::isnan(m.lse.get(2)));
        EXPECT_TRUE(std::isnan(m.lse.get(3)));
        EXPECT_TRUE(std::isfinite(m.lse.get(4)));
        for (std::size_t row = 0; row < 5; ++row)
            for (std::int64_t c = 0; c < 24; ++c)
                EXPECT_FALSE(std::isfinite(m.out.get(m.element(row, c)))) << "row " << row;
    });
}

// Part `n` of a tensor of parts.
tensor part_of(const GuardedTensor& parts, std::int64_t n) {
    flashtile_tensor raw = parts.view().raw();
    const auto offset = static_cast<std::ptrdiff_t>(n * raw.stride[0]);
    raw.data = static_cast<char*>(raw.data) + offset * (raw.dtype == FLASHTILE_FP32 ? 4 : 2);
    --raw.rank;
    for (int dimension = 0; dimension < raw.rank; ++dimension) {
        raw.shape[dimension] = raw.shape[dimension + 1];
        raw.stride[dimension] = raw.stride[dimension + 1];
    }
    return tensor(raw);
}

TEST_P(Merging, InPlaceHasTheSameBits) {
    each_type([](dtype type) {
        for (const std::int64_t head_dim : {57, 128}) {
            const Sizes sizes{4, 2, 50, 3, head_dim};
            Merge apart(sizes, type, type, where());
            apart.run(options());
            for (const std::int64_t out_part : {0, 2}) {
                const std::int64_t lse_part = out_part / 2;
                Merge m(sizes, type, type, where());
                m.outs.upload(), m.lses.upload();
                merge(options(), m.outs.view(), m.lses.view(), part_of(m.outs, out_part), part_of(m.lses, lse_part));
                m.outs.download(), m.lses.download();
                std::size_t wrong = 0;
                for (std::size_t n = 0; n < m.outs.size(); ++n) {
                    const bool written = n / m.out.size() == static_cast<std::size_t>(out_part);
                    wrong += m.outs.get(n) != (written ? apart.out.get(n % m.out.size()) : apart.outs.get(n));
                }
                for (std::size_t n = 0; n < m.lses.size(); ++n) {
                    const bool written = n / m.lse.size() == static_cast<std::size_t>(lse_part);
                    wrong += m.lses.get(n) != (written ? apart.lse.get(n % m.lse.size()) : apart.lses.get(n));
                }
                EXPECT_EQ(wrong, 0U) << "out in part " << out_part << ", d " << head_dim;
            }
        }
    });
}

TEST_P(Merging, DoesNotDependOnThreadsAndRepeats) {
    Merge one({5, 3, 300, 4, 64}, fp32, bf16, where()), more({5, 3, 300, 4, 64}, fp32, bf16, where());
    one.run(options(1));
    more.run(options(7));
    EXPECT_EQ(one.out.values(), more.out.values());
    EXPECT_EQ(one.lse.values(), more.lse.values());
}

// A view of keys [first, end) of k or v.
tensor keys_of(const GuardedTensor& all, std::int64_t first, std::int64_t end) {
    flashtile_tensor raw = all.view().raw();
    raw.data = static_cast<char*>(raw.data) + first * raw.stride[1] * (raw.dtype == FLASHTILE_FP32 ? 4 : 2);
    raw.shape[1] = end - first;
    return tensor(raw);
}

// The parts are rounded to the inputs' type and so is what they merge to, which the floor of two units has room for.
TEST_P(Merging, OfAProblemSplitByKeysIsTheWhole) {
    each_type([](dtype type) {
        Case c;
        c.type = type;
        c.batch = 2;
        c.heads = 4;
        c.kv_heads = 2;
        c.seqlen_q = 37;
        c.seqlen_k = 300;
        c.head_dim = c.head_dim_v = 64;
        ProblemData data(c, where());
        data.upload();
        Merge m({4, 2, 37, 4, 64}, type, type, where());
        m.outs.upload(), m.lses.upload();
        const std::int64_t ends[] = {0, 100, 100, 101, 300};  // one part has no keys
        for (int part = 0; part < 4; ++part)
            forward(options(), data.q.view(), keys_of(data.k, ends[part], ends[part + 1]),
                    keys_of(data.v, ends[part], ends[part + 1]), part_of(m.outs, part), part_of(m.lses, part));
        m.out.upload(), m.lse.upload();
        merge(options(), m.outs.view(), m.lses.view(), m.out.view(), m.lse.view());
        m.out.download(), m.lse.download();

        const auto exact = exact_attention(data.reference, oracle::Pass::forward);
        const auto standard = standard_attention(data.reference, precision_of(type), oracle::Pass::forward);
        const oracle::Error error = oracle::error_of(m.out.values(), exact.out);
        const oracle::Error allowed =
            oracle::allowed_error(oracle::error_of(standard.out, exact.out), exact.out, precision_of(type));
        EXPECT_LE(error.max, allowed.max);
        EXPECT_LE(error.rms, allowed.rms);
        for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t h = 0; h < 4; ++h)
                for (std::int64_t i = 0; i < 37; ++i)
                    EXPECT_NEAR(m.lse.get(static_cast<std::size_t>((b * 4 + h) * 37 + i)),
                                exact.lse[static_cast<std::size_t>((b * 37 + i) * 4 + h)],
                                2.0 * oracle::allowed_lse_error(exact.largest_score, exact.largest_lse));
    });
}

INSTANTIATE_TEST_SUITE_P(On, Merging, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
