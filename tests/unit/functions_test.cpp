// functions_test.cpp: what is wrong with a function's text is said with its place; and intervals never say of a block
// what is not so of all its elements, and do see the blocks that people's masks hide.
#include <gtest/gtest.h>

#include <flashtile/flashtile.hpp>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/random_function.h"
#include "functions/functions.h"
#include "functions/interval.h"
#include "oracle/expression.h"

namespace flashtile::unit {
namespace {

using functions::Visible;

// What a call says to a function; "" if it takes it.
std::string answer(const char* score, const char* mask, std::span<const flashtile_named_tensor> tensors = {}) {
    std::vector<float> row(4, 0.5f), out(4);
    const auto view = [](std::vector<float>& x) { return flashtile::view(x.data(), fp32, {1, 1, 1, 4}); };
    options o;
    o.score_function = score;
    o.mask_function = mask;
    o.function_tensors = tensors;
    try {
        forward(o, view(row), view(row), view(row), view(out));
    } catch (const error& refused) {
        EXPECT_EQ(out, std::vector<float>(4)) << "written before it was refused";
        return refused.what();
    }
    return "";
}

struct WrongText {
    const char* text;
    const char* said;
};

TEST(Functions, SayWhatIsWrongWithAScore) {
    std::vector<float> numbers(6);
    const flashtile_named_tensor table = named("table", view(numbers.data(), fp32, {2, 3}));
    const WrongText wrong[] = {
        {"s + foo[2]", "character 5, 'foo[2]': 'foo' is not known; known are s, b, h"},
        {"s + (i < j)", "character 3, '+ (i < j)': '+' is between a float and a bool"},
        {"s +", "its end: a value was expected, and the end was met"},
        {"(s", "')' closes '('"},
        {"s s", "'s' follows the expression"},
        {"s $ 2", "'$' is no part of the language"},
        {"table[1]", "'table' has 2 dimensions, not 1"},
        {"table[1, s]", "index 1 of 'table' is a float, not an int"},
        {"table", "'[' follows a tensor's name"},
        {"s ? 1 : 2", "'?' asks for a bool, and this is a float"},
        {"i < j ? s : i == j", "'? :' is between a float and a bool"},
        {"i < j", "a score function gives a float, not a bool"},
        {"exp(s, s)", "'exp' takes 1, not 2 arguments"},
        {"min(s)", "'min' takes 2, not 1 arguments"},
        {"s // 2", "'//' is between a float and an int, and takes ints"},
        {"!i ? s : 0", "'!' takes a bool, and this is an int"},
        {"~s", "'~' takes an int, and this is a float"},
        {"-true", "'-' takes an int or a float"},
        {"1.5f", "'1.5f' is no number"},
        {"99999999999999999999", "does not fit 64 bits"},
        {"x = s; x = s; x", "'x' names a part already"},
        {"s = 1.0; s", "'s' is a word of the language"},
        {"x = s x", "';' ends a part that has a name"},
    };
    for (const WrongText& w : wrong) {
        const std::string said = answer(w.text, nullptr, {&table, 1});
        EXPECT_NE(said.find(w.said), std::string::npos) << w.text << "\n  " << said;
        EXPECT_TRUE(said.starts_with("score_function is wrong at character ")) << said;
    }
}

TEST(Functions, SayWhatIsWrongWithAMask) {
    EXPECT_NE(answer(nullptr, "s > 0").find("'s' is a score, which a mask function does not see"), std::string::npos);
    EXPECT_NE(answer(nullptr, "i + 1").find("a mask function gives a bool, not an int"), std::string::npos);
    EXPECT_EQ(answer(nullptr, ""), "mask_function is empty, allowed is an expression, or NULL");
    EXPECT_EQ(answer(nullptr, "i >= j # the past\n"), "");
}

TEST(Functions, HaveLimits) {
    const std::string deep(300, '(');
    EXPECT_NE(answer((deep + "s" + std::string(300, ')')).c_str(), nullptr).find("nested too deep"), std::string::npos);
    EXPECT_NE(answer((std::string(300, '-') + "s").c_str(), nullptr).find("nested too deep"), std::string::npos);
    std::string many = "s";
    for (int n = 0; n < 300; ++n) many += " + " + std::to_string(n);
    EXPECT_NE(answer(many.c_str(), nullptr).find("more than 256 operations"), std::string::npos);
    EXPECT_NE(answer(std::string(5000, ' ').c_str(), nullptr).find("at most 4096"), std::string::npos);
}

TEST(Functions, SayWhatIsWrongWithATensor) {
    std::vector<float> numbers(32);
    const tensor vector = view(numbers.data(), fp32, {4});
    const auto with = [&](std::vector<flashtile_named_tensor> tensors) { return answer("s", nullptr, tensors); };
    EXPECT_EQ(with({named("ok", vector), named("fine", vector)}), "");
    EXPECT_NE(with({named("min", vector)}).find("function_tensors[0].name is 'min'"), std::string::npos);
    EXPECT_NE(with({named("2x", vector)}).find("function_tensors[0].name is '2x'"), std::string::npos);
    EXPECT_NE(with({named("a", vector), named("a", vector)}).find("a name that no other tensor has"),
              std::string::npos);
    EXPECT_NE(with({named("a", view(numbers.data(), fp32, {}))}).find("a.rank is 0, allowed is 1 to 4"),
              std::string::npos);
    EXPECT_NE(with(std::vector<flashtile_named_tensor>(9, named("a", vector))).find("function_tensor_count is 9"),
              std::string::npos);
    EXPECT_NE(answer(nullptr, nullptr, std::vector{named("a", vector)}).find("given without a function"),
              std::string::npos);
}

// What a call says to gradients of named tensors; "" if it takes them.
std::string answer_to_gradients(const char* score, std::span<const flashtile_named_tensor> tensors,
                                std::span<const flashtile_named_tensor> gradients) {
    std::vector<float> row(4, 0.5f), lse(1), dq(4), dk(4), dv(4);
    const auto view = [](std::vector<float>& x) { return flashtile::view(x.data(), fp32, {1, 1, 1, 4}); };
    options o;
    o.score_function = score;
    o.function_tensors = tensors;
    try {
        backward(o, view(row), view(row), view(row),
                 {.out = view(row),
                  .lse = flashtile::view(lse.data(), fp32, {1, 1, 1}),
                  .dout = view(row),
                  .dq = view(dq),
                  .dk = view(dk),
                  .dv = view(dv),
                  .dtensors = gradients});
    } catch (const error& refused) {
        EXPECT_EQ(dq, std::vector<float>(4)) << "written before it was refused";
        return refused.what();
    }
    return "";
}

TEST(Functions, SayWhatIsWrongWithAGradient) {
    std::vector<float> numbers(32), others(32);
    std::vector<std::int32_t> whole(4);
    const tensor vector = view(numbers.data(), fp32, {4}), gradient = view(others.data(), fp32, {4});
    const std::vector given = {named("a", vector), named("n", view(whole.data(), dtype::int32, {4}))};
    const auto with = [&](std::vector<flashtile_named_tensor> gradients) {
        return answer_to_gradients("s + a[j] + float(n[i])", given, gradients);
    };
    EXPECT_EQ(with({named("a", gradient)}), "");
    EXPECT_EQ(with({named("b", gradient)}), "dtensors[0].name is 'b', allowed is a name of function_tensors");
    EXPECT_EQ(with({named("n", gradient)}),
              "dtensors[0].name is 'n', which is int32, allowed is the name of a tensor of floats");
    EXPECT_EQ(with({named("a", gradient), named("a", gradient)}),
              "dtensors[1].name is 'a', allowed is a name that no other gradient has");
    EXPECT_EQ(with(std::vector(3, named("a", gradient))),
              "dtensor_count is 3, allowed is 0 to 2, the number of function_tensors");
    EXPECT_EQ(with({named("a", view(others.data(), fp32, {2, 2}))}),
              "da.shape is (2, 2), allowed is the tensor's shape = (4)");
    EXPECT_NE(with({named("a", view(others.data(), fp16, {4}))}).find("da.dtype is fp16"), std::string::npos);
    EXPECT_NE(with({named("a", vector)}), "") << "it overwrites what the function reads";
    EXPECT_NE(answer_to_gradients(nullptr, {}, std::vector{named("a", gradient)}).find("dtensor_count is 1"),
              std::string::npos);
    std::string many = "s";
    for (int n = 0; n < 50; ++n) many += " + tanh(a[" + std::to_string(n) + "])";
    EXPECT_EQ(answer(many.c_str(), nullptr, {&given[0], 1}), "");
    EXPECT_EQ(answer_to_gradients(many.c_str(), {&given[0], 1}, std::vector{named("a", gradient)}),
              "score_function is an expression that has over 256 operations with its derivatives by function_tensors, "
              "allowed is a shorter one, or no dtensors");
}

// Two documents of 30 and 70 tokens, and what random masks read.
struct Tensors {
    std::vector<std::int32_t> document = std::vector<std::int32_t>(100, 1);
    std::int64_t prefix = 37;
    std::uint8_t pattern[4][4][2] = {};
    std::vector<functions::TensorType> types = {{"document", 2, functions::Type::integer},
                                                {"prefix", 1, functions::Type::integer},
                                                {"pattern", 3, functions::Type::boolean}};
    std::vector<functions::FunctionTensor> tensors;
    std::vector<oracle::ExpressionTensor> oracles;

    Tensors() {
        std::fill_n(document.begin(), 30, 0);
        for (int n = 0; n < 32; ++n) (&pattern[0][0][0])[n] = n % 3 == 0;
        tensors = {{document.data(), FLASHTILE_INT32, 2, {1, 100}, {0, 1}},
                   {&prefix, FLASHTILE_INT64, 1, {1}, {0}},
                   {pattern, FLASHTILE_BOOL, 3, {4, 4, 2}, {8, 2, 1}}};
        oracles = {{"document", {1, 100}, oracle::ValueType::integer, {}, {document.begin(), document.end()}},
                   {"prefix", {1}, oracle::ValueType::integer, {}, {prefix}},
                   {"pattern", {4, 4, 2}, oracle::ValueType::boolean, {}, {&pattern[0][0][0], &pattern[0][0][0] + 32}}};
    }
};

Visible shown(const char* mask, const functions::Region& region) {
    static const Tensors all;
    const functions::Functions read("", mask, all.types);
    return functions::visible(read.view(all.tensors.data()), region);
}

TEST(Functions, IntervalsSeeTheBlocksOfKnownMasks) {
    const auto block = [](std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
        return functions::Region{0, 0, i0, i1, j0, j1, 100, 100};
    };
    EXPECT_EQ(shown("i >= j", block(0, 8, 8, 16)), Visible::none);
    EXPECT_EQ(shown("i >= j", block(8, 16, 0, 9)), Visible::all);
    EXPECT_EQ(shown("i >= j", block(8, 16, 0, 10)), Visible::some);
    EXPECT_EQ(shown("abs(i - j) < 10", block(0, 10, 20, 30)), Visible::none);
    EXPECT_EQ(shown("abs(i - j) < 10", block(0, 5, 0, 5)), Visible::all);
    EXPECT_EQ(shown("document[b, i] == document[b, j]", block(0, 30, 30, 60)), Visible::none);
    EXPECT_EQ(shown("document[b, i] == document[b, j]", block(30, 60, 40, 100)), Visible::all);
    EXPECT_EQ(shown("document[b, i] == document[b, j]", block(20, 40, 40, 100)), Visible::some);
    EXPECT_EQ(shown("j < prefix[b] || i >= j", block(0, 8, 0, 37)), Visible::all);
    EXPECT_EQ(shown("j < prefix[b] || i >= j", block(0, 8, 37, 64)), Visible::none);
    EXPECT_EQ(shown("pattern[i // 16, j // 16, h]", block(0, 16, 0, 16)), Visible::all);
    EXPECT_EQ(shown("pattern[i // 16, j // 16, h]", block(0, 16, 16, 32)), Visible::none);
}

TEST(Functions, IntervalsTellWhichScoresHide) {
    static const Tensors all;
    const auto hides = [&](const char* score) {
        const functions::Functions read(score, "", all.types);
        return functions::may_hide(read.view(all.tensors.data()), {0, 0, 0, 100, 0, 100, 100, 100});
    };
    EXPECT_FALSE(hides("s - 0.5 * abs(i - j)"));
    EXPECT_FALSE(hides("5.0 * tanh(s / 5.0)"));
    EXPECT_FALSE(hides("pattern[i % 4, j % 4, 0] ? s : -1000.0"));
    EXPECT_TRUE(hides("pattern[i % 4, j % 4, 0] ? s : -inf"));
    EXPECT_TRUE(hides("s - (i < j ? 1e30 : 0.0)"));
    EXPECT_TRUE(hides("log(abs(s))"));
    EXPECT_TRUE(hides("s / float(i - j)"));
    EXPECT_FALSE(hides("i < 100 ? s : -inf"));
}

// What kernels that are compiled for near positions take ints to be.
TEST(Functions, BoundsOfIntsNearTheOrigin) {
    const std::vector<functions::TensorType> types = {
        {"document", 2, functions::Type::integer, DType::int32},
        {"far", 1, functions::Type::integer, DType::int64},
    };
    constexpr std::int64_t kNear = 1000, kMost = kNear - 1, kMax = std::numeric_limits<std::int64_t>::max();
    const auto bounds = [&](const char* left) {  // of the left side of a comparison
        const functions::Functions read("", std::string(left) + " < 0", types);
        const functions::Graph& graph = read.mask_graph();
        const functions::IntBounds found =
            functions::bounds_near(graph, types, kNear)[static_cast<std::size_t>(graph[read.mask()].argument[0])];
        return std::pair(found.low, found.high);
    };
    EXPECT_EQ(bounds("i"), std::pair(std::int64_t{0}, kMost));
    EXPECT_EQ(bounds("i - j"), std::pair(-kMost, kMost));
    EXPECT_EQ(bounds("i * j + seqlen_k"), std::pair(std::int64_t{0}, kMost * kMost + kMost));
    EXPECT_EQ(bounds("min(max(j - i, -15), 15) + 15"), std::pair(std::int64_t{0}, std::int64_t{30}));
    EXPECT_EQ(bounds("(i - j) % 7"), std::pair(std::int64_t{0}, std::int64_t{6}));
    EXPECT_EQ(bounds("document[b, i]"), std::pair(-(std::int64_t{1} << 31), (std::int64_t{1} << 31) - 1));
    EXPECT_EQ(bounds("far[h]"), std::pair(-kMax - 1, kMax));
    EXPECT_EQ(bounds("far[h] + 1"), std::pair(-kMax - 1, kMax)) << "it may wrap";
}

TEST(Functions, IntervalsAreTrueOfEveryElement) {
    const Tensors all;
    conformance::RandomSource random(20261124);
    int decided = 0;
    for (int n = 0; n < 3000; ++n) {
        const std::string text = conformance::random_mask_function(random);
        const std::int64_t i0 = random.integer(0, 90), j0 = random.integer(0, 90);
        const functions::Region region{0,  random.integer(0, 2),       i0,  i0 + random.integer(1, 12),
                                       j0, j0 + random.integer(1, 12), 100, 100};
        const Visible said = shown(text.c_str(), region);
        if (said == Visible::some) continue;
        ++decided;
        const oracle::Expression truth(text, all.oracles, false);
        for (std::int64_t i = region.i0; i < region.i1; ++i)
            for (std::int64_t j = region.j0; j < region.j1; ++j)
                ASSERT_EQ(truth.mask({0.0, region.b, region.h, i, j, 100, 100}), said == Visible::all)
                    << text << " at i " << i << ", j " << j << ", h " << region.h;
    }
    EXPECT_GT(decided, 500);
}

}  // namespace
}  // namespace flashtile::unit
