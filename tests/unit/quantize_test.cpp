// quantize_test.cpp: e4m3 numbers and scales on every instruction set and on CUDA, beside their definitions in fp64:
// every number of the format, rounding, scales of every kind, rotation and M; and what is refused.
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "conformance/random_source.h"
#include "oracle/philox.h"
#include "oracle/precision.h"
#include "oracle/rotary.h"
#include "unit/on_target.h"
#include "unit/refusals.h"

namespace flashtile::unit {
namespace {

using conformance::GuardedTensor;
using conformance::Layout;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t at(std::int64_t n) {
    return static_cast<std::size_t>(n);
}

class Quantize : public OnTarget {
protected:
    static flashtile::options options() {
        flashtile::options o;
        o.isa = which();
        o.threads = 2;
        return o;
    }
    static void move(bool up, std::initializer_list<GuardedTensor*> tensors) {
        for (GuardedTensor* t : tensors)
            if (t->present()) up ? t->upload() : t->download();
    }
    static void quantize(const quantize_args& args, std::initializer_list<GuardedTensor*> tensors) {
        move(true, tensors);
        flashtile::quantize(options(), args);
        move(false, tensors);
    }
    static void dequantize(const quantize_args& args, std::initializer_list<GuardedTensor*> tensors) {
        move(true, tensors);
        flashtile::dequantize(options(), args);
        move(false, tensors);
    }
    static GuardedTensor laid_out(dtype type, std::vector<std::int64_t> shape, Layout layout = {}) {
        return {type, std::move(shape), layout, conformance::Guard::nan_bands, where()};
    }
};

INSTANTIATE_TEST_SUITE_P(all, Quantize, testing::ValuesIn(all_targets()), target_name);

// All 256 of them.
TEST_P(Quantize, DequantizesEveryNumber) {
    each_type([](dtype type) {
        GuardedTensor x = fresh(type, {1, 4, 1, 64}), quantized = fresh(fp8_e4m3, {1, 4, 1, 64}),
                      scale = fresh(fp32, {});
        for (std::size_t n = 0; n < 256; ++n)
            quantized.set(n, static_cast<double>(oracle::from_e4m3_bits(static_cast<std::uint8_t>(n))));
        scale.set(0, 0.5);
        dequantize({.x = x.view(), .quantized = quantized.view(), .scale = scale.view()}, {&x, &quantized, &scale});
        for (std::size_t n = 0; n < 256; ++n) {
            const double expected = 0.5 * static_cast<double>(oracle::from_e4m3_bits(static_cast<std::uint8_t>(n)));
            if (std::isnan(expected))
                EXPECT_TRUE(std::isnan(x.get(n))) << n;
            else
                EXPECT_EQ(x.get(n), expected) << n;  // no 16-bit type rounds these
        }
        EXPECT_TRUE(x.poison_intact(std::vector<bool>(256, true)));
    });
}

// Numbers of the format, numbers half between them and a little beside that, and what lies past the range.
TEST_P(Quantize, RoundsToNearestEven) {
    std::vector<double> values = {0.0, 464.0, 465.0, 1e30, kInfinity, kNan, 0x1p-10, 0x1.8p-10, 0x1p-11, 1e-30};
    for (std::uint8_t bits = 0; bits < 0x7E; ++bits) {
        const double low = static_cast<double>(oracle::from_e4m3_bits(bits)),
                     high = static_cast<double>(oracle::from_e4m3_bits(bits + 1));
        for (const double x : {low, (low + high) / 2, std::nextafterf(static_cast<float>((low + high) / 2), 0.0f) * 1.0,
                               std::nextafterf(static_cast<float>((low + high) / 2), 1000.0f) * 1.0})
            values.push_back(x);
    }
    values.resize((values.size() + 3) / 4 * 4);
    const auto rows = static_cast<std::int64_t>(values.size()) / 4;
    GuardedTensor x = fresh(fp32, {1, rows, 2, 4}), quantized = fresh(fp8_e4m3, {1, rows, 2, 4}),
                  scale = fresh(fp32, {});
    for (std::size_t n = 0; n < values.size(); ++n) {
        x.set(2 * n, values[n]);
        x.set(2 * n + 1, -values[n]);
    }
    scale.set(0, 1.0);
    scale.remember();
    quantize({.x = x.view(), .quantized = quantized.view(), .scale = scale.view(), .scale_given = true},
             {&x, &quantized, &scale});
    EXPECT_TRUE(scale.unchanged());
    for (std::size_t n = 0; n < x.size(); ++n) {
        const double expected =
            static_cast<double>(oracle::round_to(static_cast<float>(x.get(n)), oracle::Precision::e4m3));
        if (std::isnan(expected))
            EXPECT_TRUE(std::isnan(quantized.get(n))) << x.get(n);
        else
            EXPECT_EQ(quantized.get(n), expected) << x.get(n);
    }
}

enum class Kind { whole, heads, blocks };

struct Shape {
    std::int64_t batch, seqlen, heads, d;
    std::vector<std::int64_t> lengths{};  // packed

    std::int64_t sequences() const { return lengths.empty() ? batch : static_cast<std::int64_t>(lengths.size()); }
    std::int64_t length(std::int64_t b) const { return lengths.empty() ? seqlen : lengths[at(b)]; }
    std::int64_t start(std::int64_t b) const {
        std::int64_t row = lengths.empty() ? b * seqlen : 0;
        for (std::int64_t n = 0; n < b && !lengths.empty(); ++n) row += lengths[at(n)];
        return row;
    }
    std::int64_t rows() const { return start(sequences()) + (lengths.empty() ? 0 : 2); }  // two of no sequence
    std::vector<std::int64_t> shape() const {
        if (lengths.empty()) return {batch, seqlen, heads, d};
        return {rows(), heads, d};
    }
};

// A call with all that it may have, and what its definition gives.
struct Whole {
    Shape shape;
    Kind kind = Kind::blocks;
    int block = 64;
    bool given = false;
    std::optional<std::uint64_t> hadamard{};
    bool rotary = false, interleaved = false, offsets = false, positions = false;
    Layout layout{};
    std::int64_t rotary_begin = 1, pairs = 0;  // 0: a quarter of the columns
    dtype type = fp32;
};

// Row times M, by the definition: signs, then Sylvester's matrix on blocks of the largest power of two.
std::vector<double> times_m(const std::vector<double>& row, std::uint64_t seed) {
    const std::size_t d = row.size(), size = d & (~d + 1);
    std::vector<double> result(d);
    const auto sign_of = [&](std::size_t c) {
        const oracle::Counter words =
            oracle::philox4x32({static_cast<std::uint32_t>(c / 128), 0, 0, 0x61646148},
                               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, 7);
        return (words[c / 32 % 4] >> c % 32 & 1) != 0 ? -1.0 : 1.0;
    };
    for (std::size_t to = 0; to < d; ++to) {
        double sum = 0.0;
        for (std::size_t n = 0; n < size; ++n) {
            const std::size_t from = to / size * size + n;
            const double h = std::popcount(n & (to % size)) % 2 == 0 ? 1.0 : -1.0;
            sum += sign_of(from) * row[from] * h;
        }
        result[to] = sum / std::sqrt(static_cast<double>(size));
    }
    return result;
}

class QuantizeWhole : public Quantize {
protected:
    void check(const Whole& w) {
        const Shape& s = w.shape;
        GuardedTensor x = laid_out(w.type, s.shape(), w.layout), quantized = laid_out(fp8_e4m3, s.shape(), w.layout);
        conformance::RandomSource random(at(s.d + s.seqlen));
        for (std::size_t n = 0; n < x.size(); ++n) x.set(n, random.normal() * (random.chance(0.01) ? 30.0 : 1.0));
        GuardedTensor scale = fresh(fp32, scale_shape(w)), cu, cos, sin, offsets, positions;
        if (!s.lengths.empty()) {
            cu = fresh(dtype::int64, {s.sequences() + 1});
            for (std::int64_t b = 0; b <= s.sequences(); ++b) cu.set(at(b), static_cast<double>(s.start(b)));
        }
        const std::int64_t pairs = w.pairs != 0 ? w.pairs : s.d / 4, table = s.seqlen + 40;
        if (w.rotary) {
            cos = fresh(fp32, {table, pairs}), sin = fresh(fp32, {table, pairs});
            for (std::int64_t n = 0; n < table * pairs; ++n) {
                const double angle = static_cast<double>(n / pairs) /
                                     std::pow(100.0, static_cast<double>(n % pairs) / static_cast<double>(pairs));
                cos.set(at(n), std::cos(angle)), sin.set(at(n), std::sin(angle));
            }
        }
        if (w.offsets) {
            offsets = fresh(dtype::int32, {s.sequences()});
            for (std::int64_t b = 0; b < s.sequences(); ++b) offsets.set(at(b), static_cast<double>(7 * b));
        }
        if (w.positions) {
            std::vector<std::int64_t> shape = s.shape();
            shape.resize(shape.size() - 2);
            positions = fresh(dtype::int32, shape);
            for (std::size_t n = 0; n < positions.size(); ++n) positions.set(n, static_cast<double>(n * 5 % at(table)));
        }
        if (w.given)
            for (std::size_t n = 0; n < scale.size(); ++n) scale.set(n, 0.01 * (1.0 + random.uniform()));
        quantize({.x = x.view(),
                  .quantized = quantized.view(),
                  .scale = scale.view(),
                  .cu_seqlens = cu.view(),
                  .scale_block = w.kind == Kind::blocks ? w.block : 0,
                  .scale_given = w.given,
                  .rotary_cos = cos.view(),
                  .rotary_sin = sin.view(),
                  .rotary_offsets = offsets.view(),
                  .positions = positions.view(),
                  .rotary_begin = w.rotary ? w.rotary_begin : 0,
                  .rotary_interleaved = w.interleaved,
                  .hadamard = w.hadamard},
                 {&x, &quantized, &scale, &cu, &cos, &sin, &offsets, &positions});

        // What is to be quantised, by its definition.
        std::vector<double> y(x.size());
        std::vector<bool> owned(x.size(), false);
        std::vector<double> largest(scale.size(), 0.0);
        for (std::int64_t b = 0; b < s.sequences(); ++b)
            for (std::int64_t i = 0; i < s.length(b); ++i)
                for (std::int64_t h = 0; h < s.heads; ++h) {
                    const std::size_t first = at(((s.start(b) + i) * s.heads + h) * s.d);
                    std::vector<double> row;
                    for (std::int64_t c = 0; c < s.d; ++c) row.push_back(x.get(first + at(c)));
                    if (w.rotary) {
                        const auto position = w.positions
                                                  ? at(static_cast<std::int64_t>(positions.get(at(s.start(b) + i))))
                                                  : at(i + (w.offsets ? 7 * b : 0));
                        std::vector<double> of_cos, of_sin;
                        for (std::size_t n = 0; n < at(pairs); ++n) {
                            of_cos.push_back(cos.get(position * at(pairs) + n));
                            of_sin.push_back(sin.get(position * at(pairs) + n));
                        }
                        row = oracle::rotate(row, of_cos, of_sin, w.rotary_begin, w.interleaved);
                    }
                    if (w.hadamard) row = times_m(row, *w.hadamard);
                    double& most = largest[scale_of(w, b, i, h)];
                    for (std::int64_t c = 0; c < s.d; ++c) {
                        y[first + at(c)] = row[at(c)];
                        owned[first + at(c)] = true;
                        most = std::max(most, std::abs(row[at(c)]));
                    }
                }
        for (std::size_t n = 0; n < scale.size() && !w.given; ++n)
            EXPECT_NEAR(scale.get(n), largest[n] == 0.0 ? 1.0 : largest[n] / 448.0, 1e-5 * largest[n]) << n;
        for (std::int64_t b = 0; b < s.sequences(); ++b)
            for (std::int64_t i = 0; i < s.length(b); ++i)
                for (std::int64_t h = 0; h < s.heads; ++h)
                    for (std::int64_t c = 0; c < s.d; ++c) {
                        const std::size_t n = at(((s.start(b) + i) * s.heads + h) * s.d + c);
                        const double by = scale.get(scale_of(w, b, i, h)), exact = y[n] / by;
                        const double nearest =
                            static_cast<double>(oracle::round_to(static_cast<float>(exact), oracle::Precision::e4m3));
                        // Another number only where both are as near, but for fp32's own rounding.
                        ASSERT_LE(std::abs(quantized.get(n) - exact),
                                  std::abs(nearest - exact) + 2e-5 * std::abs(exact) + 1e-5)
                            << "at " << n;
                    }
        EXPECT_TRUE(quantized.poison_intact(owned));
        EXPECT_TRUE(scale.poison_intact(std::vector<bool>(scale.size(), true)));

        // And back.
        GuardedTensor back = laid_out(fp32, s.shape(), w.layout);
        if (w.rotary) return;
        dequantize({.x = back.view(),
                    .quantized = quantized.view(),
                    .scale = scale.view(),
                    .cu_seqlens = cu.view(),
                    .scale_block = w.kind == Kind::blocks ? w.block : 0,
                    .hadamard = w.hadamard},
                   {&back, &quantized, &scale, &cu});
        double squares = 0.0, errors = 0.0;
        for (std::size_t n = 0; n < x.size(); ++n) {
            if (!owned[n]) continue;
            squares += x.get(n) * x.get(n);
            errors += (back.get(n) - x.get(n)) * (back.get(n) - x.get(n));
        }
        // 2^-5 an element, and a little for small ones
        if (!w.given) {
            EXPECT_LT(errors, 0.05 * 0.05 * squares);
        }
        EXPECT_TRUE(back.poison_intact(owned));
    }

    static std::vector<std::int64_t> scale_shape(const Whole& w) {
        const Shape& s = w.shape;
        if (w.kind == Kind::whole) return {};
        if (w.kind == Kind::heads) return {s.sequences(), 2};
        std::int64_t blocks = 0;
        for (std::int64_t b = 0; b < s.sequences(); ++b) blocks += (s.length(b) + w.block - 1) / w.block;
        if (!s.lengths.empty()) return {s.heads, blocks + 1};
        return {s.batch, s.heads, (s.seqlen + w.block - 1) / w.block};
    }
    static std::size_t scale_of(const Whole& w, std::int64_t b, std::int64_t i, std::int64_t h) {
        const Shape& s = w.shape;
        if (w.kind == Kind::whole) return 0;
        if (w.kind == Kind::heads) return at(2 * b + h / (s.heads / 2));
        const std::int64_t blocks = scale_shape(w).back();
        if (s.lengths.empty()) return at((b * s.heads + h) * blocks + i / w.block);
        std::int64_t before = 0;
        for (std::int64_t n = 0; n < b; ++n) before += (s.lengths[at(n)] + w.block - 1) / w.block;
        return at(h * blocks + before + i / w.block);
    }
};

INSTANTIATE_TEST_SUITE_P(all, QuantizeWhole, testing::ValuesIn(all_targets()), target_name);

TEST_P(QuantizeWhole, ScalesOfEveryKind) {
    for (const Kind kind : {Kind::whole, Kind::heads, Kind::blocks})
        for (const bool given : {false, true})
            for (const Shape& shape : {Shape{2, 130, 4, 64}, Shape{1, 64, 2, 33}, Shape{3, 1, 4, 128},
                                       Shape{1, 150, 4, 40, {65, 0, 128, 1}}}) {
                SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " " + std::to_string(shape.d));
                check({.shape = shape, .kind = kind, .block = shape.d == 64 ? 128 : 64, .given = given});
            }
}

TEST_P(QuantizeWhole, HadamardOfEveryWidth) {
    for (const std::int64_t d : {1, 2, 7, 8, 24, 32, 64, 80, 96, 128, 192, 256, 576})
        check({.shape = {1, 70, 2, d}, .hadamard = 0x123456789abcdefu + at(d)});
}

TEST_P(QuantizeWhole, RotatesFirst) {
    for (const bool packed : {false, true})
        for (const bool hadamard : {false, true}) {
            Whole w{.shape = {2, 100, 2, 64}, .rotary = true, .interleaved = hadamard, .offsets = packed != hadamard};
            if (packed) w.shape.lengths = {70, 0, 30};
            if (hadamard) w.hadamard = 5;
            check(w);
            w.offsets = false;
            w.positions = true;
            check(w);
        }
    // Columns that vectors hold: both halves of a row, a part of it; of an odd number of heads, and of more blocks than
    // a small device has thread blocks for.
    check({.shape = {2, 100, 3, 64}, .hadamard = 5, .rotary = true, .rotary_begin = 0, .pairs = 32});
    check({.shape = {2, 100, 3, 64}, .hadamard = 5, .rotary = true, .rotary_begin = 16, .pairs = 16});
    check({.shape = {9, 150, 3, 64}, .rotary = true, .rotary_begin = 0, .pairs = 32});
    check({.shape = {9, 150, 3, 64}, .rotary = true, .rotary_begin = 0, .pairs = 32, .type = bf16});
    check({.shape = {2, 100, 3, 64}, .hadamard = 5, .rotary = true, .rotary_begin = 16, .pairs = 16, .type = bf16});
}

TEST_P(QuantizeWhole, Layouts) {
    check({.shape = {2, 70, 4, 24}, .layout = {.heads_before_rows = true, .row_gap = 5}});
    check({.shape = {2, 70, 4, 24}, .kind = Kind::heads, .layout = {.row_gap = 3}});
}

// Zeros have scale 1; what is not finite becomes NaN and leaves the scale alone.
TEST_P(Quantize, ZerosAndWhatIsNotFinite) {
    GuardedTensor x = fresh(bf16, {1, 192, 1, 16}), quantized = fresh(fp8_e4m3, {1, 192, 1, 16}),
                  scale = fresh(fp32, {1, 1, 3});
    for (std::size_t n = 0; n < x.size(); ++n) x.set(n, n / 16 < 64 ? 0.0 : n / 16 < 128 ? 2.0 : 1e-38);
    x.set(16 * 70, kNan), x.set(16 * 71, kInfinity), x.set(16 * 72 + 3, -kInfinity);
    quantize({.x = x.view(), .quantized = quantized.view(), .scale = scale.view(), .scale_block = 64},
             {&x, &quantized, &scale});
    EXPECT_EQ(scale.get(0), 1.0);
    EXPECT_NEAR(scale.get(1), 2.0 / 448.0, 1e-8);
    EXPECT_GE(scale.get(2), std::numeric_limits<float>::min());  // its inverse is finite
    for (const std::size_t n : {16u * 70, 16u * 71, 16u * 72 + 3}) EXPECT_TRUE(std::isnan(quantized.get(n)));
    EXPECT_EQ(quantized.get(16 * 70 + 1), 448.0);
    EXPECT_EQ(quantized.get(5), 0.0);
    for (std::size_t n = 16 * 128; n < x.size(); ++n) EXPECT_TRUE(std::isfinite(quantized.get(n)));
}

// q and k times the same M have the scores of q and k.
TEST_P(Quantize, HadamardLeavesScores) {
    GuardedTensor x = fresh(fp32, {1, 2, 1, 96}), quantized = fresh(fp8_e4m3, {1, 2, 1, 96}),
                  scale = fresh(fp32, {1, 1, 1});
    conformance::RandomSource random(3);
    for (std::size_t n = 0; n < x.size(); ++n) x.set(n, random.normal());
    quantize({.x = x.view(), .quantized = quantized.view(), .scale = scale.view(), .scale_block = 64, .hadamard = 11},
             {&x, &quantized, &scale});
    double exact = 0.0, ours = 0.0;
    for (std::size_t c = 0; c < 96; ++c) {
        exact += x.get(c) * x.get(96 + c);
        ours += quantized.get(c) * quantized.get(96 + c) * scale.get(0) * scale.get(0);
    }
    EXPECT_NEAR(ours, exact, 0.5);  // 96 products with a relative error of 2^-5 each
}

struct Call {
    GuardedTensor memory[7] = {{fp32, {2, 70, 4, 16}}, {fp8_e4m3, {2, 70, 4, 16}}, {fp32, {2, 4, 2}},  {fp32, {80, 8}},
                               {fp32, {80, 8}},        {dtype::int32, {2}},        {dtype::int32, {3}}};
    flashtile_tensor x = memory[0].view().raw(), quantized = memory[1].view().raw(), scale = memory[2].view().raw(),
                     cos = memory[3].view().raw(), sin = memory[4].view().raw(), offsets = memory[5].view().raw(),
                     cu = memory[6].view().raw();
    flashtile_quantize_tensors t = FLASHTILE_QUANTIZE_TENSORS_INIT;
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    bool back = false;

    Call() {
        for (GuardedTensor& each : memory)
            for (std::size_t n = 0; n < each.size(); ++n) each.set(n, static_cast<double>(n % 3));
        t.x = &x, t.quantized = &quantized, t.scale = &scale, t.scale_block = 64;
        t.rotary_cos = &cos, t.rotary_sin = &sin, t.rotary_offsets = &offsets;
        for (GuardedTensor& each : memory) each.remember();
    }
    flashtile_status run() { return back ? flashtile_dequantize(&options, &t) : flashtile_quantize(&options, &t); }
};

TEST(QuantizeRefuses, WhatIsWrong) {
    const Refusal<Call> list[] = {
        {[](Call& c) { c.t.size = 7; }, {"tensors.size is 7"}},
        {[](Call& c) { c.t.x = nullptr; }, {"x is NULL"}},
        {[](Call& c) { c.t.quantized = nullptr; }, {"quantized is NULL"}},
        {[](Call& c) { c.t.scale = nullptr; }, {"scale is NULL"}},
        {[](Call& c) { c.x.dtype = FLASHTILE_FP8_E4M3; }, {"x.dtype is fp8_e4m3", "fp32, fp16 or bf16"}},
        {[](Call& c) { c.quantized.dtype = FLASHTILE_BOOL; }, {"quantized.dtype is bool", "fp8_e4m3"}},
        {[](Call& c) { c.quantized.shape[1] = 69; },
         {"quantized.shape is (2, 69, 4, 16)", "x's shape = (2, 70, 4, 16)"}},
        {[](Call& c) { c.x.rank = c.quantized.rank = 3; }, {"x.rank is 3", "4: (batch, seqlen, heads, head_dim)"}},
        {[](Call& c) { c.t.cu_seqlens = &c.cu; }, {"x.rank is 4", "3: (total, heads, head_dim)"}},
        {[](Call& c) { c.x.shape[3] = c.quantized.shape[3] = 577; }, {"a head_dim from 1 to 576"}},
        {[](Call& c) { c.scale.dtype = FLASHTILE_BF16; }, {"scale.dtype is bf16", "fp32"}},
        {[](Call& c) { c.scale.shape[2] = 3; }, {"scale.shape is (2, 4, 3)", "= (2, 4, 2)"}},
        {[](Call& c) { c.t.scale_block = 0; },
         {"scale.rank is 3", "2: (batch, a divisor of heads), without scale_block"}},
        {[](Call& c) { c.t.scale_block = 0, c.scale.rank = 2, c.scale.shape[1] = 3; },
         {"scale.shape is (2, 3)", "a divisor of the 4 heads"}},
        {[](Call& c) { c.t.scale_block = 100; }, {"scale_block is 100", "0, 64 or 128"}},
        {[](Call& c) { c.scale.rank = 0; }, {"scale_block is 64", "0, since no scale is for a block"}},
        {[](Call& c) { c.sin.shape[1] = 7; }, {"rotary_sin.shape is (80, 7)", "rotary_cos's shape = (80, 8)"}},
        {[](Call& c) { c.t.rotary_begin = 1; }, {"rotary_cos.shape is (80, 8)", "1 to 7 angles"}},
        {[](Call& c) { c.t.rotary_cos = nullptr; }, {"rotary_cos is NULL"}},
        {[](Call& c) { c.t.rotary_cos = c.t.rotary_sin = nullptr; }, {"rotary_offsets is given without rotary_cos"}},
        {[](Call& c) { c.memory[5].set(1, 11.0), c.memory[5].remember(); }, {"rotary_offsets[1] is 11", "0 to 10"}},
        {[](Call& c) { c.cos.shape[0] = c.sin.shape[0] = 69; },
         {"rotary_cos.shape is (69, 8)", "at least 70 positions"}},
        {[](Call& c) { c.scale.data = c.x.data; }, {"scale is overlapping x"}},
        {[](Call& c) { c.scale.stride[0] = 0; }, {"scale.stride is such that elements share memory"}},
        {[](Call& c) { c.back = true; }, {"rotary_cos is given to dequantize", "rotation is not undone"}},
    };
    expect_refused<Call>(list, [](Call& call) {
        for (GuardedTensor& each : call.memory) EXPECT_TRUE(each.unchanged());
    });
}

}  // namespace
}  // namespace flashtile::unit
