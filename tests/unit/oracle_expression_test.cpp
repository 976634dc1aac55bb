// oracle_expression_test.cpp: the oracle's reading of score and mask functions against C's own operators and closed
// forms.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/expression.h"

namespace flashtile::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

const Expression::Place kPlace{0.75, 1, 2, 5, 9, 12, 30};

std::vector<ExpressionTensor> tensors() {
    return {{"slope", {3}, ValueType::real, {0.5, -1.25, 2.0}, {}},
            {"table", {2, 3}, ValueType::integer, {}, {10, 11, 12, 20, 21, kLeast}},
            {"keep", {2, 1, 2}, ValueType::boolean, {}, {1, 0, 0, 1}},
            {"deep", {1, 2, 1, 2}, ValueType::real, {1.0, 2.0, 3.0, 4.0}, {}}};
}

Expression::Dual dual(const std::string& text, double s = kPlace.s, bool single = false) {
    Expression::Place place = kPlace;
    place.s = s;
    return Expression(text, tensors(), true).score(place, single);
}

double real(const std::string& text, bool single = false) {
    return dual(text, kPlace.s, single).value;
}

// By halves: a score is a float, which holds no int of 64 bits.
std::int64_t integer(const std::string& text) {
    const double high = real("(" + text + ") >> 32"), low = real("(" + text + ") & 0xffffffff");
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(static_cast<std::int64_t>(high)) << 32 |
                                     static_cast<std::uint64_t>(low));
}

bool truth(const std::string& text) {
    return Expression(text, tensors(), false).mask(kPlace);
}

bool refused(const std::string& text, bool with_score) {
    try {
        const Expression expression(text, tensors(), with_score);
        return false;
    } catch (const std::invalid_argument&) {
        return true;
    }
}

TEST(OracleExpression, Names) {
    EXPECT_EQ(real("s"), 0.75);
    EXPECT_EQ(integer("b"), 1);
    EXPECT_EQ(integer("h"), 2);
    EXPECT_EQ(integer("i"), 5);
    EXPECT_EQ(integer("j"), 9);
    EXPECT_EQ(integer("seqlen_q"), 12);
    EXPECT_EQ(integer("seqlen_k"), 30);
    EXPECT_TRUE(truth("true"));
    EXPECT_FALSE(truth("false"));
    EXPECT_EQ(real("inf"), kInfinity);
    EXPECT_EQ(real("-inf", true), -kInfinity);
}

TEST(OracleExpression, Literals) {
    EXPECT_EQ(integer("12"), 12);
    EXPECT_EQ(integer("0x1f"), 31);
    EXPECT_EQ(integer("0xFf"), 255);
    EXPECT_EQ(integer("9223372036854775807"), kMost);
    EXPECT_EQ(integer("0x7fffffffffffffff"), kMost);
    EXPECT_EQ(real("1.5"), 1.5);
    EXPECT_EQ(real(".5"), 0.5);
    EXPECT_EQ(real("0.1"), static_cast<double>(0.1f));
    EXPECT_EQ(real("2e-3"), static_cast<double>(2e-3f));
    EXPECT_EQ(real("2.5E+2"), 250.0);
    // Just above the middle of two floats, where rounding to fp64 first would end at the even one below.
    EXPECT_EQ(real("1.00000005960464477540"), static_cast<double>(1.00000005960464477540f));
    EXPECT_EQ(real("1e39"), kInfinity);
}

// Every pair of operators, on ints, bools and both: `x one y two z` is the grouping that C's precedence says, refused
// where that is.
TEST(OracleExpression, PrecedenceOfEveryPair) {
    struct Operator {
        const char* text;
        int strength;
    };
    const Operator operators[] = {{"||", 1}, {"&&", 2}, {"|", 3},  {"^", 4},   {"&", 5},  {"==", 6}, {"!=", 6},
                                  {"<", 7},  {"<=", 7}, {">", 7},  {">=", 7},  {"<<", 8}, {">>", 8}, {"+", 9},
                                  {"-", 9},  {"*", 10}, {"/", 10}, {"//", 10}, {"%", 10}};
    const std::vector<std::string> xs = {"true", "false", "14"}, ys = {"true", "false", "3"},
                                   zs = {"true", "false", "1", "2"};
    const auto value = [](const std::string& text) -> std::optional<double> {
        try {
            return Expression("float(" + text + ")", {}, true).score(kPlace, false).value;
        } catch (const std::invalid_argument&) {
            return std::nullopt;
        }
    };
    int told_apart = 0;
    for (const Operator& one : operators)
        for (const Operator& two : operators) {
            bool differs = false;
            for (const std::string& x : xs)
                for (const std::string& y : ys)
                    for (const std::string& z : zs) {
                        const std::string first = x + one.text + y, second = y + two.text + z;
                        const auto left = value("(" + first + ")" + two.text + z);
                        const auto right = value(x + one.text + "(" + second + ")");
                        const std::string text = first + two.text + z;
                        ASSERT_EQ(value(text), one.strength >= two.strength ? left : right) << text;
                        differs = differs || left != right;
                    }
            told_apart += differs ? 1 : 0;
        }
    EXPECT_GE(told_apart, 290);  // of 361: the others give the same either way, or are refused
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wparentheses"
#define EXPECT_INTEGER_OF_C(expression) EXPECT_EQ(integer(#expression), expression)
#define EXPECT_TRUTH_OF_C(expression) EXPECT_EQ(truth(#expression), static_cast<bool>(expression)) << #expression
TEST(OracleExpression, PrecedenceOfTheCompiler) {
    const std::int64_t i = kPlace.i, j = kPlace.j, h = kPlace.h;
    EXPECT_INTEGER_OF_C(i + j * h);
    EXPECT_INTEGER_OF_C(i - j - h);
    EXPECT_INTEGER_OF_C(i << h + 1);
    EXPECT_INTEGER_OF_C(i - j >> 1 << 3);
    EXPECT_INTEGER_OF_C(i | j ^ h & 3);
    EXPECT_INTEGER_OF_C(i & j | h ^ 3 & i << 1);
    EXPECT_INTEGER_OF_C(j * i % 7 * 3);
    EXPECT_INTEGER_OF_C(14 % 5 % 3);
    EXPECT_INTEGER_OF_C(14 - 3 | 4);
    EXPECT_INTEGER_OF_C(6 & 7 % 5);
    EXPECT_INTEGER_OF_C(-i * ~j - -h);
    EXPECT_INTEGER_OF_C(~i + 1);
    EXPECT_INTEGER_OF_C(- -i);
    EXPECT_INTEGER_OF_C(i > j ? i : j > h ? j - h : h);
    EXPECT_INTEGER_OF_C(i < j ? i > h ? 10 : 20 : 30);
    EXPECT_INTEGER_OF_C(i < j ? i : j + 100);
    EXPECT_TRUTH_OF_C(true || false && false);
    EXPECT_TRUTH_OF_C(i < j == true);
    EXPECT_TRUTH_OF_C(i + 1 < j - 4 != j >= i << 1);
    EXPECT_TRUTH_OF_C(!true || true);
    EXPECT_TRUTH_OF_C(!(true || true));
    EXPECT_TRUTH_OF_C(i == 5 && j == 9 || h == 0);
    EXPECT_TRUTH_OF_C(i == 4 || j == 9 && h == 2);
    EXPECT_TRUTH_OF_C(false == false & false);
    EXPECT_TRUTH_OF_C(true | true ^ true);
    EXPECT_TRUTH_OF_C(true || true ? false : true);
}
#pragma GCC diagnostic pop

TEST(OracleExpression, BoolsByBitOperators) {
    EXPECT_TRUE(truth("true ^ false"));
    EXPECT_FALSE(truth("true ^ true"));
    EXPECT_FALSE(truth("true & false"));
    EXPECT_TRUE(truth("false | true"));
    EXPECT_TRUE(truth("(i < j) != (j < i)"));
}

TEST(OracleExpression, FloorDivision) {
    for (std::int64_t a = -9; a <= 9; ++a)
        for (std::int64_t b = -4; b <= 4; ++b) {
            const std::string left = std::to_string(a), right = std::to_string(b);
            const std::string pair = left + " // " + right, rest = left + " % " + right;
            const std::int64_t quotient =
                b == 0 ? 0 : static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
            EXPECT_EQ(integer(pair), quotient) << pair;
            EXPECT_EQ(integer(rest), b == 0 ? 0 : a - quotient * b) << rest;
        }
    EXPECT_EQ(integer("(-9223372036854775807 - 1) // -1"), kLeast);
    EXPECT_EQ(integer("(-9223372036854775807 - 1) % -1"), 0);
    EXPECT_EQ(integer("(-9223372036854775807 - 1) // 2"), kLeast / 2);
    EXPECT_EQ(integer("-i // 2"), -3);  // the minus binds more than the division
    EXPECT_EQ(integer("-i % 3"), 1);
}

TEST(OracleExpression, DivisionOfIntsIsAFloat) {
    EXPECT_EQ(real("7 / 2"), 3.5);
    EXPECT_EQ(real("i / j"), 5.0 / 9.0);
    EXPECT_EQ(real("i / j", true), static_cast<double>(5.0f / 9.0f));
    EXPECT_EQ(real("1 / 0"), kInfinity);
    EXPECT_EQ(real("-1 / 0"), -kInfinity);
    EXPECT_TRUE(std::isnan(real("0 / 0")));
}

TEST(OracleExpression, IntsWrap) {
    EXPECT_EQ(integer("9223372036854775807 + 1"), kLeast);
    EXPECT_EQ(integer("-9223372036854775807 - 2"), kMost);
    EXPECT_EQ(integer("9223372036854775807 * 2"), -2);
    EXPECT_EQ(integer("-(-9223372036854775807 - 1)"), kLeast);
    EXPECT_EQ(integer("abs(-9223372036854775807 - 1)"), kLeast);
}

TEST(OracleExpression, Shifts) {
    EXPECT_EQ(integer("1 << 63"), kLeast);
    EXPECT_EQ(integer("1 << 64"), 1);
    EXPECT_EQ(integer("1 << 67"), 8);
    EXPECT_EQ(integer("1 << -1"), kLeast);
    EXPECT_EQ(integer("3 << 63"), kLeast);
    EXPECT_EQ(integer("-8 >> 1"), -4);
    EXPECT_EQ(integer("-1 >> 63"), -1);
    EXPECT_EQ(integer("-8 >> 65"), -4);
    EXPECT_EQ(integer("9223372036854775807 >> 62"), 1);
}

TEST(OracleExpression, IntsMeetFloats) {
    EXPECT_EQ(real("i + 0.5"), 5.5);
    EXPECT_EQ(real("0.5 * i"), 2.5);
    EXPECT_EQ(real("true ? 1 : 0.5"), 1.0);
    EXPECT_EQ(real("(false ? 0.5 : 7) / 2"), 3.5);
    EXPECT_EQ(real("min(3, 2.5)"), 2.5);
    EXPECT_EQ(real("max(3, 2.5) / 2"), 1.5);
    EXPECT_TRUE(truth("1 == 1.0"));
    EXPECT_TRUE(truth("2 > 1.5"));
    EXPECT_TRUE(truth("16777217 == 16777216.0"));  // in fp32 they are the same
    EXPECT_EQ(real("exp(1)"), std::exp(1.0));
    EXPECT_EQ(real("i"), 5.0);  // an int is a score
    // Halfway between two floats but for one: rounding to fp64 first would end at the even one below.
    EXPECT_EQ(real("0x4000004000000001", true), std::ldexp(1.0 + std::ldexp(1.0, -23), 62));
}

TEST(OracleExpression, Conversions) {
    EXPECT_EQ(integer("int(2.9)"), 2);
    EXPECT_EQ(integer("int(-2.9)"), -2);
    EXPECT_EQ(integer("int(inf)"), 0);
    EXPECT_EQ(integer("int(-inf)"), 0);
    EXPECT_EQ(integer("int(inf - inf)"), 0);
    EXPECT_EQ(integer("int(9223372036854775808.0)"), 0);
    EXPECT_EQ(integer("int(-9223372036854775808.0)"), kLeast);
    EXPECT_EQ(integer("int(true) + int(false) + int(i)"), 6);
    EXPECT_EQ(real("float(true) + float(i) + float(0.5)"), 6.5);
    EXPECT_TRUE(truth("bool(-3) && bool(0.25) && bool(true)"));
    EXPECT_FALSE(truth("bool(0) || bool(0.0) || bool(-0.0)"));
    EXPECT_TRUE(truth("bool(inf - inf)"));  // NaN != 0
}

TEST(OracleExpression, Functions) {
    EXPECT_EQ(integer("min(i, j)"), 5);
    EXPECT_EQ(integer("max(i, j)"), 9);
    EXPECT_EQ(integer("abs(i - j)"), 4);
    EXPECT_EQ(real("abs(-0.5)"), 0.5);
    EXPECT_EQ(real("log(2)"), std::log(2.0));
    EXPECT_EQ(real("tanh(0.5)"), std::tanh(0.5));
    EXPECT_EQ(real("sqrt(2)"), std::sqrt(2.0));
    EXPECT_EQ(real("sqrt(2)", true), static_cast<double>(std::sqrt(2.0f)));
    EXPECT_TRUE(std::isnan(real("min(inf - inf, 1.0)")));  // nothing is less than NaN: the first
    EXPECT_EQ(real("min(1.0, inf - inf)"), 1.0);
    EXPECT_EQ(real("max(1.0, inf - inf)"), 1.0);
}

TEST(OracleExpression, NaNs) {
    EXPECT_TRUE(truth("inf - inf != inf - inf"));
    EXPECT_FALSE(truth("inf - inf == inf - inf || inf - inf < 1.0 || inf - inf >= 1.0"));
}

TEST(OracleExpression, PartsAndComments) {
    EXPECT_EQ(real("near = abs(i - j) < 64; near ? s : s - 1.0"), 0.75);
    EXPECT_EQ(real("a = 2 * s;\n# a comment; with = signs\nb2 = a * a; # another\nb2 + a#the last"), 3.75);
    EXPECT_EQ(real(" x1 = i ; _y=x1+1; _y * x1"), 30.0);
    EXPECT_EQ(real("a = s; b1 = a + a; b2 = b1 + b1; b2 + b2"), 6.0);
    std::string doubled = "a0 = s;";  // quick, although the tree without its names has 2^60 leaves
    for (int n = 0; n < 60; ++n) {
        const std::string old = std::to_string(n), next = std::to_string(n + 1);
        doubled += "a" + next + " = a" + old + " + a" + old + ";";
    }
    EXPECT_EQ(real(doubled + "a60"), std::ldexp(0.75, 60));
    EXPECT_EQ(dual("a = s * s; a * s", 2.0).derivative, 12.0);
}

TEST(OracleExpression, Loads) {
    EXPECT_EQ(real("slope[h]"), 2.0);
    EXPECT_EQ(real("slope[0]"), 0.5);
    EXPECT_EQ(real("slope[3]"), 0.0);
    EXPECT_EQ(real("slope[-1]"), 0.0);
    EXPECT_EQ(integer("table[b, 1]"), 21);
    EXPECT_EQ(integer("table[0, 2]"), 12);
    EXPECT_EQ(integer("table[1, 2]"), kLeast);
    EXPECT_EQ(integer("table[0, 3]"), 0);  // not the next row's first
    EXPECT_EQ(integer("table[2, 0]"), 0);
    EXPECT_EQ(integer("table[-1, 5]"), 0);
    EXPECT_EQ(integer("table[0, 9223372036854775807]"), 0);
    EXPECT_EQ(real("slope[table[0, h] - 11]"), -1.25);
    EXPECT_TRUE(truth("keep[0, 0, 0] && keep[1, 0, 1]"));
    EXPECT_FALSE(truth("keep[0, 0, 1] || keep[0, 1, 0] || keep[2, 0, 0]"));
    EXPECT_EQ(real("deep[0, 1, 0, 1]"), 4.0);
    EXPECT_EQ(real("deep[0, 1, 0, 0] / 2"), 1.5);
}

TEST(OracleExpression, Derivatives) {
    for (const double s : {-1.5, -0.25, 0.5, 2.0}) {
        const auto derivative = [s](const std::string& text) { return dual(text, s).derivative; };
        const double x = std::abs(s);
        EXPECT_EQ(derivative("s"), 1.0);
        EXPECT_EQ(derivative("-s"), -1.0);
        EXPECT_EQ(derivative("3 * s - s * 0.5 + i"), 2.5);
        EXPECT_DOUBLE_EQ(derivative("s * s * s"), 3 * s * s);
        EXPECT_DOUBLE_EQ(derivative("1 / s"), -1 / (s * s));
        EXPECT_DOUBLE_EQ(derivative("s / 4"), 0.25);
        EXPECT_DOUBLE_EQ(derivative("s / (1 + s * s)"), (1 - s * s) / ((1 + s * s) * (1 + s * s)));
        EXPECT_DOUBLE_EQ(derivative("exp(2 * s)"), 2 * std::exp(2 * s));
        EXPECT_DOUBLE_EQ(derivative("log(s * s)"), 2 / s);
        EXPECT_DOUBLE_EQ(derivative("20 * tanh(s / 20)"), 1 - std::tanh(s / 20) * std::tanh(s / 20));
        EXPECT_DOUBLE_EQ(derivative("sqrt(abs(s))"), (s < 0 ? -0.5 : 0.5) / std::sqrt(x));
        EXPECT_EQ(derivative("abs(s)"), s < 0 ? -1.0 : 1.0);
        EXPECT_EQ(derivative("min(s, 2 * s)"), s < 0 ? 2.0 : 1.0);
        EXPECT_EQ(derivative("max(s, 2 * s)"), s < 0 ? 1.0 : 2.0);
        EXPECT_EQ(derivative("s > 0 ? 3 * s : 5 * s"), s > 0 ? 3.0 : 5.0);
        EXPECT_EQ(derivative("float(s)"), 1.0);
        EXPECT_EQ(derivative("float(int(s))"), 0.0);
        EXPECT_EQ(derivative("float(bool(s)) + float(s < 1.0)"), 0.0);
        EXPECT_EQ(derivative("s * float(int(s))"), std::trunc(s));
    }
}

TEST(OracleExpression, DerivativesAtCorners) {
    EXPECT_EQ(dual("abs(s)", 0.0).derivative, 1.0);
    EXPECT_EQ(dual("abs(s)", -0.0).derivative, 1.0);
    EXPECT_EQ(dual("min(s, 2 * s)", 0.0).derivative, 1.0);  // equal: the first
    EXPECT_EQ(dual("max(s, 2 * s)", 0.0).derivative, 1.0);
    // What s has no part in has no derivative, however steep the functions of it are.
    EXPECT_EQ(dual("s + sqrt(i - 5)").derivative, 1.0);
    EXPECT_EQ(dual("s + log(i - 5)").derivative, 1.0);
    EXPECT_EQ(dual("i > j ? s : -inf * 2.0").derivative, 0.0);
    EXPECT_EQ(dual("s - 1 / (i - 5)").derivative, 1.0);
    EXPECT_EQ(dual("true ? s : exp(1000 * s)").derivative, 1.0);
    EXPECT_EQ(dual("sqrt(s)", 0.0).derivative, kInfinity);
}

TEST(OracleExpression, SingleRoundsEachOperation) {
    const float s = 0.1f;
    EXPECT_EQ(dual("s * s + 1", 0.1, true).value, static_cast<double>(s * s + 1.0f));
    EXPECT_EQ(dual("(s + 16777216.0) - 16777216.0", 0.75, true).value, 0.0);
    EXPECT_EQ(dual("(s + 16777216.0) - 16777216.0", 0.75, false).value, 0.75);
    EXPECT_EQ(dual("s * (1 / 3)", 0.1, true).derivative, static_cast<double>(1.0f / 3.0f));
    EXPECT_EQ(dual("exp(s)", 100.0, true).value, kInfinity);
    EXPECT_TRUE(truth("16777216.0 + 1.0 == 16777216.0"));  // masks are
}

TEST(OracleExpression, WrongTextsAreRefused) {
    for (const char* text : {"",
                             "# only this",
                             "1 +",
                             "* 1",
                             "(1",
                             "1)",
                             "((i)",
                             "i j",
                             "1 2",
                             "1;",
                             "a = 1",
                             "a = 1;",
                             "a = 1 a",
                             "= 1; 2",
                             "a == 1; 2",
                             "+1",
                             "i ? 1 : 2",
                             "true ? 1",
                             "true ? 1 :",
                             "true : 1",
                             "$",
                             "1 = 2",
                             "i & & j",
                             "!",
                             "0x",
                             "0xg",
                             "1e",
                             "1e+",
                             "12a",
                             "1.5f",
                             "1.2.3",
                             "1..2",
                             "0x1.8",
                             ".",
                             "9223372036854775808",
                             "0xffffffffffffffff",
                             "\"s\"",
                             "i\\"}) {
        EXPECT_TRUE(refused(text, true)) << text;
        EXPECT_TRUE(refused(text, false)) << text;
    }
    EXPECT_TRUE(refused(std::string("s\0", 2), true));
}

TEST(OracleExpression, WrongTypesAreRefused) {
    for (const char* text : {"i < j",
                             "true",
                             "true + 1",
                             "1 - false",
                             "true * 2.0",
                             "true / 1",
                             "1.0 // 2",
                             "1 // 2.0",
                             "1.5 % 2",
                             "7 % 2.0",
                             "s << 1",
                             "1 >> 1.0",
                             "true << 1",
                             "s & 1",
                             "1 | 1.0",
                             "~1.0",
                             "~true",
                             "-true",
                             "!i",
                             "!s",
                             "true ? 1 : true",
                             "true ? s : true",
                             "s ? 1 : 2",
                             "exp(true)",
                             "abs(true)",
                             "min(1, true)",
                             "max(true, true)",
                             "sqrt(i < j)",
                             "slope[s]",
                             "slope[1.0]",
                             "slope[true]",
                             "table[0, 0.0]",
                             "keep[0, 0, 0]"})
        EXPECT_TRUE(refused(text, true)) << text;
    for (const char* text :
         {"i", "1.0", "i && j", "true && 1", "1.0 || true", "true & 1", "1 ^ false", "true == 1", "1.0 != true",
          "true < false", "1 < true", "1 < 2 < 3", "i == j == 1", "slope[h]", "!i == j", "i & 1 == 1"})
        EXPECT_TRUE(refused(text, false)) << text;
}

TEST(OracleExpression, WrongNamesAreRefused) {
    for (const char* text : {"s > 0.0", "x = s; true", "unknown == 1", "x = x + 1; true", "True", "S == 1"})
        EXPECT_TRUE(refused(text, false)) << text;
    for (const char* text :
         {"unknown",        "unknown[0]",   "unknown(1)", "slope",          "slope(0)",     "slope[]",
          "slope[0, 0]",    "slope[0",      "table[0]",   "table[0, 0, 0]", "table[0][0]",  "i[0]",
          "x = i; x[0]",    "x = i; x(0)",  "abs",        "abs 1",          "abs()",        "abs(1, 2)",
          "min(1)",         "min(1, 2, 3)", "exp(1",      "exp[1]",         "min(1,)",      "s = 1.0; s",
          "i = 1; s",       "true = 1; s",  "abs = 1; s", "inf = 1.0; s",   "slope = 1; s", "x = 1; x = 2; s",
          "y = x; x = 1; s"})
        EXPECT_TRUE(refused(text, true)) << text;
}

TEST(OracleExpression, WrongTensorsAreRefused) {
    const auto wrong = [](const ExpressionTensor& tensor, const ExpressionTensor& other) {
        EXPECT_THROW(Expression("s", {tensor, other}, true), std::invalid_argument) << tensor.name;
    };
    const ExpressionTensor good{"good", {1}, ValueType::real, {1.0}, {}};
    wrong(good, good);
    wrong({"s", {1}, ValueType::real, {1.0}, {}}, good);
    wrong({"exp", {1}, ValueType::real, {1.0}, {}}, good);
    wrong({"", {1}, ValueType::real, {1.0}, {}}, good);
    wrong({"1x", {1}, ValueType::real, {1.0}, {}}, good);
    wrong({"a b", {1}, ValueType::real, {1.0}, {}}, good);
    wrong({"few", {2}, ValueType::real, {1.0}, {}}, good);
    wrong({"other_type", {1}, ValueType::integer, {1.0}, {}}, good);
    wrong({"no_dimensions", {}, ValueType::real, {1.0}, {}}, good);
    wrong({"five", {1, 1, 1, 1, 1}, ValueType::real, {1.0}, {}}, good);
}

}  // namespace
}  // namespace flashtile::oracle
