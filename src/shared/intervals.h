// intervals.h: the operations of the user's functions (docs/functions.md) on intervals. Where each argument lies in its
// interval, the result lies in the one that an operation gives. Where that would take more than a few lines it gives
// every value of the type. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/mask.h"
#include "shared/rounding.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {
namespace intervals {

// From the least value to the greatest. Of bools false is less than true.
struct Bools {
    bool low, high;
};
struct Ints {
    Index low, high;
};
// Not known: every value, NaN among them.
struct Reals {
    float low, high;
    bool known;
};

constexpr Index kGreatestInt = 0x7FFFFFFFFFFFFFFF, kLeastInt = -kGreatestInt - 1;
constexpr float kGreatestReal = 0x1.fffffep127f;

FLASHTILE_DEVICE Bools any_bool() {
    return {false, true};
}
FLASHTILE_DEVICE Ints any_int() {
    return {kLeastInt, kGreatestInt};
}
FLASHTILE_DEVICE Reals any_real() {
    return {0.0f, 0.0f, false};
}
FLASHTILE_DEVICE Reals reals(float low, float high) {
    return {low, high, low <= high};  // a NaN on either side is unknown
}
// A single value.
FLASHTILE_DEVICE Bools only(bool value) {
    return {value, value};
}
FLASHTILE_DEVICE Ints only(Index value) {
    return {value, value};
}
FLASHTILE_DEVICE Reals only(float value) {
    return reals(value, value);
}
FLASHTILE_DEVICE bool is_single(const Bools& a) {
    return a.low == a.high;
}
FLASHTILE_DEVICE bool is_single(const Ints& a) {
    return a.low == a.high;
}

template <class T>
FLASHTILE_DEVICE T lesser(T a, T b) {
    return b < a ? b : a;
}
template <class T>
FLASHTILE_DEVICE T greater(T a, T b) {
    return a < b ? b : a;
}

// Either of two.
FLASHTILE_DEVICE Bools join(const Bools& a, const Bools& b) {
    return {a.low && b.low, a.high || b.high};
}
FLASHTILE_DEVICE Ints join(const Ints& a, const Ints& b) {
    return {lesser(a.low, b.low), greater(a.high, b.high)};
}
FLASHTILE_DEVICE Reals join(const Reals& a, const Reals& b) {
    return {lesser(a.low, b.low), greater(a.high, b.high), a.known && b.known};
}
template <class Interval>
FLASHTILE_DEVICE Interval choose(const Bools& condition, const Interval& yes, const Interval& no) {
    if (condition.low) return yes;
    if (!condition.high) return no;
    return join(yes, no);
}

// Ints. Where a result may wrap it is unknown.

FLASHTILE_DEVICE bool sums_fit(const Ints& a) {
    return a.low >= kLeastInt / 2 && a.high <= kGreatestInt / 2;
}
FLASHTILE_DEVICE bool product_fits(Index x, Index y) {
    const float product = rounded_product(static_cast<float>(x), static_cast<float>(y));  // to a part in 2^22
    return product > -9e18f && product < 9e18f;
}
// By a positive number.
FLASHTILE_DEVICE Index floor_quotient(Index x, Index y) {
    return x / y - (x % y < 0 ? 1 : 0);
}
FLASHTILE_DEVICE Index floor_rest(Index x, Index y) {
    const Index rest = x % y;
    return rest < 0 ? rest + y : rest;
}

FLASHTILE_DEVICE Ints add(const Ints& a, const Ints& b) {
    if (!sums_fit(a) || !sums_fit(b)) return any_int();
    return {a.low + b.low, a.high + b.high};
}
FLASHTILE_DEVICE Ints negate(const Ints& a) {
    if (a.low == kLeastInt) return any_int();
    return {-a.high, -a.low};
}
FLASHTILE_DEVICE Ints subtract(const Ints& a, const Ints& b) {
    return add(a, negate(b));
}
FLASHTILE_DEVICE Ints multiply(const Ints& a, const Ints& b) {
    if (!product_fits(a.low, b.low) || !product_fits(a.low, b.high) || !product_fits(a.high, b.low) ||
        !product_fits(a.high, b.high))
        return any_int();
    return join(join(only(a.low * b.low), only(a.low * b.high)), join(only(a.high * b.low), only(a.high * b.high)));
}
FLASHTILE_DEVICE Ints minimum(const Ints& a, const Ints& b) {
    return {lesser(a.low, b.low), lesser(a.high, b.high)};
}
FLASHTILE_DEVICE Ints maximum(const Ints& a, const Ints& b) {
    return {greater(a.low, b.low), greater(a.high, b.high)};
}
FLASHTILE_DEVICE Ints absolute(const Ints& a) {
    if (a.low >= 0) return a;
    const Ints negated = negate(a);
    if (a.high <= 0 || a.low == kLeastInt) return negated;
    return {0, greater(negated.high, a.high)};
}
FLASHTILE_DEVICE Ints floor_divide(const Ints& a, const Ints& b) {
    if (b.low <= 0) return any_int();
    return {floor_quotient(a.low, a.low < 0 ? b.low : b.high), floor_quotient(a.high, a.high < 0 ? b.high : b.low)};
}
FLASHTILE_DEVICE Ints remainder(const Ints& a, const Ints& b) {
    if (b.low <= 0) return any_int();
    if (is_single(b) && floor_quotient(a.low, b.low) == floor_quotient(a.high, b.low))
        return {floor_rest(a.low, b.low), floor_rest(a.high, b.low)};
    return {0, b.high - 1};
}
FLASHTILE_DEVICE Ints shift_left(const Ints& a, const Ints& b) {
    if (!is_single(b) || b.low < 0 || b.low > 62) return any_int();
    return multiply(a, only(Index{1} << b.low));
}
FLASHTILE_DEVICE Ints shift_right(const Ints& a, const Ints& b) {
    if (!is_single(b)) return any_int();
    return {a.low >> (b.low & 63), a.high >> (b.low & 63)};
}
FLASHTILE_DEVICE Ints bit_not(const Ints& a) {
    return {~a.high, ~a.low};
}
FLASHTILE_DEVICE Ints bit_and(const Ints& a, const Ints& b) {
    if (is_single(a) && is_single(b)) return only(a.low & b.low);
    if (a.low >= 0) return {0, b.low >= 0 ? lesser(a.high, b.high) : a.high};
    if (b.low >= 0) return {0, b.high};
    return any_int();
}
FLASHTILE_DEVICE Ints bit_or(const Ints& a, const Ints& b) {
    return is_single(a) && is_single(b) ? only(a.low | b.low) : any_int();
}
FLASHTILE_DEVICE Ints bit_xor(const Ints& a, const Ints& b) {
    return is_single(a) && is_single(b) ? only(a.low ^ b.low) : any_int();
}

FLASHTILE_DEVICE Bools bit_not(const Bools& a) {
    return {!a.high, !a.low};
}
FLASHTILE_DEVICE Bools bit_and(const Bools& a, const Bools& b) {
    return {a.low && b.low, a.high && b.high};
}
FLASHTILE_DEVICE Bools bit_or(const Bools& a, const Bools& b) {
    return {a.low || b.low, a.high || b.high};
}
FLASHTILE_DEVICE Bools bit_xor(const Bools& a, const Bools& b) {
    return is_single(a) && is_single(b) ? only(a.low != b.low) : any_bool();
}

// Reals. Operations in fp32 round monotonically, so that bounds are results of bounds.

FLASHTILE_DEVICE bool is_finite(const Reals& a) {
    return a.known && a.low >= -kGreatestReal && a.high <= kGreatestReal;
}
FLASHTILE_DEVICE Reals from_corners(float a, float b, float c, float d) {
    return reals(lesser(lesser(a, b), lesser(c, d)), greater(greater(a, b), greater(c, d)));
}

FLASHTILE_DEVICE Reals negate(const Reals& a) {
    return {-a.high, -a.low, a.known};
}
FLASHTILE_DEVICE Reals add(const Reals& a, const Reals& b) {
    if (!is_finite(a) || !is_finite(b)) return any_real();
    return reals(a.low + b.low, a.high + b.high);
}
FLASHTILE_DEVICE Reals subtract(const Reals& a, const Reals& b) {
    return add(a, negate(b));
}
FLASHTILE_DEVICE Reals multiply(const Reals& a, const Reals& b) {
    if (!is_finite(a) || !is_finite(b)) return any_real();
    return from_corners(rounded_product(a.low, b.low), rounded_product(a.low, b.high), rounded_product(a.high, b.low),
                        rounded_product(a.high, b.high));
}
FLASHTILE_DEVICE Reals divide(const Reals& a, const Reals& b) {
    if (!is_finite(a) || !is_finite(b) || (b.low <= 0.0f && b.high >= 0.0f)) return any_real();
    return from_corners(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high);
}
FLASHTILE_DEVICE Reals minimum(const Reals& a, const Reals& b) {
    return {lesser(a.low, b.low), lesser(a.high, b.high), a.known && b.known};
}
FLASHTILE_DEVICE Reals maximum(const Reals& a, const Reals& b) {
    return {greater(a.low, b.low), greater(a.high, b.high), a.known && b.known};
}
FLASHTILE_DEVICE Reals absolute(const Reals& a) {
    if (a.low >= 0.0f) return a;
    return {a.high <= 0.0f ? -a.high : 0.0f, greater(-a.low, a.high), a.known};
}
FLASHTILE_DEVICE Reals tanh(const Reals& a) {
    return {-1.0f, 1.0f, a.known};
}
FLASHTILE_DEVICE Reals exp(const Reals&) {
    return any_real();
}
FLASHTILE_DEVICE Reals log(const Reals&) {
    return any_real();
}
FLASHTILE_DEVICE Reals sqrt(const Reals&) {
    return any_real();
}

// Whether every value of one is less than every value of the other, or not greater.
FLASHTILE_DEVICE bool below(const Bools& a, const Bools& b) {
    return !a.high && b.low;
}
FLASHTILE_DEVICE bool below(const Ints& a, const Ints& b) {
    return a.high < b.low;
}
FLASHTILE_DEVICE bool below(const Reals& a, const Reals& b) {
    return a.known && b.known && a.high < b.low;
}
FLASHTILE_DEVICE bool not_above(const Bools& a, const Bools& b) {
    return !a.high || b.low;
}
FLASHTILE_DEVICE bool not_above(const Ints& a, const Ints& b) {
    return a.high <= b.low;
}
FLASHTILE_DEVICE bool not_above(const Reals& a, const Reals& b) {
    return a.known && b.known && a.high <= b.low;
}
template <class Interval>
FLASHTILE_DEVICE Bools less(const Interval& a, const Interval& b) {
    return {below(a, b), !not_above(b, a)};
}
template <class Interval>
FLASHTILE_DEVICE Bools less_equal(const Interval& a, const Interval& b) {
    return {not_above(a, b), !below(b, a)};
}
template <class Interval>
FLASHTILE_DEVICE Bools equal(const Interval& a, const Interval& b) {
    return {not_above(a, b) && not_above(b, a), !below(a, b) && !below(b, a)};
}
template <class Interval>
FLASHTILE_DEVICE Bools not_equal(const Interval& a, const Interval& b) {
    return bit_not(equal(a, b));
}

FLASHTILE_DEVICE Bools to_bool(const Ints& a) {
    return {a.low > 0 || a.high < 0, a.low != 0 || a.high != 0};
}
FLASHTILE_DEVICE Bools to_bool(const Reals& a) {
    if (!a.known) return any_bool();
    return {a.low > 0.0f || a.high < 0.0f, a.low != 0.0f || a.high != 0.0f};
}
FLASHTILE_DEVICE Ints to_int(const Bools& a) {
    return {a.low ? 1 : 0, a.high ? 1 : 0};
}
FLASHTILE_DEVICE Ints to_int(const Reals& a) {
    if (!a.known || a.low <= -0x1p63f || a.high >= 0x1p63f) return any_int();
    return {static_cast<Index>(a.low), static_cast<Index>(a.high)};
}
FLASHTILE_DEVICE Reals to_real(const Bools& a) {
    return {a.low ? 1.0f : 0.0f, a.high ? 1.0f : 0.0f, true};
}
FLASHTILE_DEVICE Reals to_real(const Ints& a) {
    return {static_cast<float>(a.low), static_cast<float>(a.high), true};
}

}  // namespace intervals
}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
