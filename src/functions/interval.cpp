// interval.cpp: see interval.h. An operation on intervals gives an interval that holds every result; where that would
// take more than a few lines it gives the whole type, unless its arguments are single values.
#include "functions/interval.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "flashtile/flashtile.h"
#include "functions/functions.h"
#include "shared/mask.h"

namespace flashtile::functions {
namespace {

// Elements of a tensor that are looked through for their least and greatest.
constexpr std::int64_t kMostElements = 4096;

// What a score function is taken to be given. Beyond it products of q and k hide keys as well as functions do.
constexpr float kLargestScore = 1e20f;

__extension__ using Wide = __int128;
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();

// Bools are 0 and 1 of low and high. A float that may be NaN is unknown.
struct Interval {
    Type type;
    bool known;  // of floats; ints and bools always have bounds
    std::int64_t low, high;
    float least, most;

    bool single() const { return type == Type::real ? known && least == most : low == high; }
};

Interval ints(std::int64_t low, std::int64_t high) {
    return {Type::integer, true, low, high, 0.0f, 0.0f};
}
Interval bools(bool low, bool high) {
    return {Type::boolean, true, low ? 1 : 0, high ? 1 : 0, 0.0f, 0.0f};
}
Interval reals(float least, float most) {
    return {Type::real, least <= most, 0, 1, least, most};  // NaN on either side is unknown
}
Interval anything(Type type) {
    if (type == Type::integer) return ints(kLeast, kGreatest);
    return {type, false, 0, 1, 0.0f, 0.0f};
}
// Unless the exact bounds fit, a result may have wrapped.
Interval fitting(Wide low, Wide high) {
    if (low < kLeast || high > kGreatest) return anything(Type::integer);
    return ints(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high));
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
    const std::int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

template <class T, class Combine>
std::pair<T, T> of_corners(T a0, T a1, T b0, T b1, Combine combine) {
    const T corners[] = {combine(a0, b0), combine(a0, b1), combine(a1, b0), combine(a1, b1)};
    const auto [least, most] = std::ranges::minmax(corners);
    return {least, most};
}

// Bounds of what functions are given.
struct Given {
    Interval b, h, i, j, seqlen_q, seqlen_k;

    static Given of(const Region& r) {
        return {ints(r.b, r.b),
                ints(r.h, r.h),
                ints(r.i0, r.i1 - 1),
                ints(r.j0, r.j1 - 1),
                ints(r.seqlen_q, r.seqlen_q),
                ints(r.seqlen_k, r.seqlen_k)};
    }
};

class Evaluation {
public:
    Evaluation(const Graph& graph, const FunctionTensor* tensors, const Given& given)
        : graph_(graph), tensors_(tensors), given_(given) {}
    Evaluation(const Graph& graph, const FunctionTensor* tensors, const Region& region)
        : Evaluation(graph, tensors, Given::of(region)) {}

    Interval of(int root) {
        for (int n = 0; n <= root; ++n) values_[static_cast<std::size_t>(n)] = step(graph_[n]);
        return values_[static_cast<std::size_t>(root)];
    }
    // Of a node up to that one.
    const Interval& operator[](int n) const { return values_[static_cast<std::size_t>(n)]; }

    // Shifts of 32 bits take smaller counts.
    bool fits_32_bits() {
        if (graph_.size() > 0) of(graph_.size() - 1);
        for (int n = 0; n < graph_.size(); ++n) {
            const Node& node = graph_[n];
            const Interval& value = values_[static_cast<std::size_t>(n)];
            if (node.type == Type::integer &&
                !within(value, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()))
                return false;
            if ((node.op == Op::shift_left || node.op == Op::shift_right) && !within(argument(node, 1), 0, 31))
                return false;
        }
        return true;
    }

private:
    static bool within(const Interval& value, std::int64_t low, std::int64_t high) {
        return value.low >= low && value.high <= high;
    }

    const Interval& argument(const Node& node, int n) const {
        return values_[static_cast<std::size_t>(node.argument[static_cast<std::size_t>(n)])];
    }

    Interval step(const Node& node) const {
        switch (node.op) {
            case Op::constant:
                if (node.type == Type::real) return reals(node.real, node.real);
                return {node.type, true, node.integer, node.integer, 0.0f, 0.0f};
            case Op::s:
                return reals(-kLargestScore, kLargestScore);
            case Op::b:
                return given_.b;
            case Op::h:
                return given_.h;
            case Op::i:
                return given_.i;
            case Op::j:
                return given_.j;
            case Op::seqlen_q:
                return given_.seqlen_q;
            case Op::seqlen_k:
                return given_.seqlen_k;
            case Op::load:
                return loaded(node);
            case Op::select:
                return chosen(argument(node, 0), argument(node, 1), argument(node, 2));
            case Op::convert:
                return converted(node.type, argument(node, 0));
            case Op::less:
            case Op::less_equal:
            case Op::equal:
            case Op::not_equal:
                return compared(node.op, argument(node, 0), argument(node, 1));
            default:
                break;
        }
        const Interval& a = argument(node, 0);
        const Interval& b = node.arguments > 1 ? argument(node, 1) : a;
        switch (node.type) {
            case Type::boolean:
                return of_bools(node.op, a, b);
            case Type::integer:
                return of_ints(node.op, a, b);
            case Type::real:
                return of_reals(node.op, a, b);
        }
        return anything(node.type);
    }

    static Interval of_bools(Op op, const Interval& a, const Interval& b) {
        switch (op) {
            case Op::bit_and:
                return bools((a.low & b.low) != 0, (a.high & b.high) != 0);
            case Op::bit_or:
                return bools((a.low | b.low) != 0, (a.high | b.high) != 0);
            case Op::bit_xor:
                if (a.single() && b.single()) return bools(a.low != b.low, a.low != b.low);
                return bools(false, true);
            case Op::bit_not:
                return bools(a.high == 0, a.low == 0);
            default:
                return bools(false, true);
        }
    }

    static Interval of_ints(Op op, const Interval& a, const Interval& b) {
        const auto both = [&](auto combine) {
            const auto [low, high] = of_corners<Wide>(a.low, a.high, b.low, b.high, combine);
            return fitting(low, high);
        };
        switch (op) {
            case Op::add:
                return fitting(Wide{a.low} + b.low, Wide{a.high} + b.high);
            case Op::subtract:
                return fitting(Wide{a.low} - b.high, Wide{a.high} - b.low);
            case Op::multiply:
                return both([](Wide x, Wide y) { return x * y; });
            case Op::negate:
                return fitting(-Wide{a.high}, -Wide{a.low});
            case Op::minimum:
                return ints(std::min(a.low, b.low), std::min(a.high, b.high));
            case Op::maximum:
                return ints(std::max(a.low, b.low), std::max(a.high, b.high));
            case Op::absolute:
                if (a.low >= 0) return a;
                if (a.high <= 0) return fitting(-Wide{a.high}, -Wide{a.low});
                return fitting(0, std::max(-Wide{a.low}, Wide{a.high}));
            case Op::floor_divide:
                if (b.low <= 0) return anything(Type::integer);
                {
                    const auto [low, high] = of_corners(a.low, a.high, b.low, b.high, floor_divided);
                    return ints(low, high);
                }
            case Op::remainder:
                if (!b.single() || b.low <= 0) return anything(Type::integer);
                if (const std::int64_t quotient = floor_divided(a.low, b.low); quotient == floor_divided(a.high, b.low))
                    return ints(a.low - quotient * b.low, a.high - quotient * b.low);
                return ints(0, b.low - 1);
            case Op::shift_left:
                if (!b.single() || b.low < 0 || b.low > 62) return anything(Type::integer);
                return fitting(Wide{a.low} * (Wide{1} << b.low), Wide{a.high} * (Wide{1} << b.low));
            case Op::shift_right:
                if (!b.single()) return anything(Type::integer);
                return ints(a.low >> (b.low & 63), a.high >> (b.low & 63));
            case Op::bit_not:
                return ints(~a.high, ~a.low);
            case Op::bit_and:
                if (a.single() && b.single()) return ints(a.low & b.low, a.low & b.low);
                if (a.low >= 0 || b.low >= 0)
                    return ints(0, a.low < 0 ? b.high : b.low < 0 ? a.high : std::min(a.high, b.high));
                return anything(Type::integer);
            case Op::bit_or:
                if (a.single() && b.single()) return ints(a.low | b.low, a.low | b.low);
                return anything(Type::integer);
            case Op::bit_xor:
                if (a.single() && b.single()) return ints(a.low ^ b.low, a.low ^ b.low);
                return anything(Type::integer);
            default:
                return anything(Type::integer);
        }
    }

    // fp32 operations round monotonically, so that bounds are results of bounds.
    static Interval of_reals(Op op, const Interval& a, const Interval& b) {
        if (!a.known || !b.known) return anything(Type::real);
        switch (op) {
            case Op::add:
                return reals(a.least + b.least, a.most + b.most);
            case Op::subtract:
                return reals(a.least - b.most, a.most - b.least);
            case Op::multiply: {
                if (!std::isfinite(a.least) || !std::isfinite(a.most) || !std::isfinite(b.least) ||
                    !std::isfinite(b.most))
                    return anything(Type::real);
                const auto [least, most] =
                    of_corners(a.least, a.most, b.least, b.most, [](float x, float y) { return x * y; });
                return reals(least, most);
            }
            case Op::negate:
                return reals(-a.most, -a.least);
            case Op::minimum:
                return reals(std::min(a.least, b.least), std::min(a.most, b.most));
            case Op::maximum:
                return reals(std::max(a.least, b.least), std::max(a.most, b.most));
            case Op::absolute:
                if (a.least >= 0) return a;
                if (a.most <= 0) return reals(-a.most, -a.least);
                return reals(0.0f, std::max(-a.least, a.most));
            case Op::divide: {
                if (b.least <= 0.0f && b.most >= 0.0f) return anything(Type::real);
                if (!std::isfinite(a.least) || !std::isfinite(a.most)) return anything(Type::real);
                const auto [least, most] =
                    of_corners(a.least, a.most, b.least, b.most, [](float x, float y) { return x / y; });
                return reals(least, most);
            }
            case Op::tanh:
                return reals(-1.0f, 1.0f);
            case Op::exp:
                return reals(0.0f, std::numeric_limits<float>::infinity());
            default:
                return anything(Type::real);
        }
    }

    static Interval compared(Op op, const Interval& a, const Interval& b) {
        const bool real = a.type == Type::real;
        if (real && (!a.known || !b.known)) return bools(false, true);
        const auto below = [&](const Interval& x, const Interval& y) {  // all of x < all of y
            return real ? x.most < y.least : x.high < y.low;
        };
        const auto not_above = [&](const Interval& x, const Interval& y) {
            return real ? x.most <= y.least : x.high <= y.low;
        };
        switch (op) {
            case Op::less:
                return bools(below(a, b), !not_above(b, a));
            case Op::less_equal:
                return bools(not_above(a, b), !below(b, a));
            default:
                break;
        }
        const bool apart = below(a, b) || below(b, a);
        const bool same = not_above(a, b) && not_above(b, a);
        return op == Op::equal ? bools(same, !apart) : bools(apart, !same);
    }

    static Interval chosen(const Interval& condition, const Interval& yes, const Interval& no) {
        if (condition.low == 1) return yes;
        if (condition.high == 0) return no;
        Interval either = yes;
        either.low = std::min(yes.low, no.low);
        either.high = std::max(yes.high, no.high);
        either.known = yes.known && no.known;
        either.least = std::min(yes.least, no.least);
        either.most = std::max(yes.most, no.most);
        return either;
    }

    static Interval converted(Type to, const Interval& a) {
        if (a.type == Type::real) {
            if (to == Type::boolean) {
                if (!a.known) return bools(false, true);
                return bools(a.least > 0 || a.most < 0, a.least != 0 || a.most != 0);
            }
            if (!a.known || !(std::fabs(a.least) < 0x1p63f) || !(std::fabs(a.most) < 0x1p63f))
                return anything(Type::integer);
            return ints(static_cast<std::int64_t>(a.least), static_cast<std::int64_t>(a.most));
        }
        if (to == Type::real) return reals(static_cast<float>(a.low), static_cast<float>(a.high));
        if (to == Type::boolean) return bools(a.low > 0 || a.high < 0, a.low != 0 || a.high != 0);
        return ints(a.low, a.high);
    }

    // The least and the greatest of the elements at the arguments' intervals, and 0 if some of these lie outside.
    Interval loaded(const Node& node) const {
        const FunctionTensor& tensor = tensors_[node.tensor];
        if (tensor.data == nullptr) return of_type(tensor, node.type);
        std::int64_t first[kMostDimensions] = {}, end[kMostDimensions] = {1, 1, 1, 1}, count = 1;
        bool outside = false;
        for (int n = 0; n < node.arguments; ++n) {
            const Interval& index = argument(node, n);
            outside |= index.low < 0 || index.high >= tensor.shape[n];
            first[n] = std::max<std::int64_t>(index.low, 0);
            end[n] = index.high < tensor.shape[n] ? index.high + 1 : tensor.shape[n];
            if (first[n] >= end[n]) return zero(node.type);
            if (__builtin_mul_overflow(count, end[n] - first[n], &count) || count > kMostElements)
                return of_type(tensor, node.type);
        }
        std::optional<Interval> all;
        if (outside) all = zero(node.type);
        const int last = node.arguments - 1;  // of these dimensions, which is gone through by a loop of its own
        const std::int64_t elements = end[last] - first[last];
        end[last] = first[last] + 1;
        std::int64_t at[kMostDimensions];
        for (at[0] = first[0]; at[0] < end[0]; ++at[0])
            for (at[1] = first[1]; at[1] < end[1]; ++at[1])
                for (at[2] = first[2]; at[2] < end[2]; ++at[2])
                    for (at[3] = first[3]; at[3] < end[3]; ++at[3]) {
                        std::int64_t offset = 0;
                        for (int n = 0; n <= last; ++n) offset += at[n] * tensor.stride[n];
                        const Interval these = line(tensor, offset, elements, tensor.stride[last]);
                        if (these.type == Type::real && !these.known) return these;
                        all = all ? chosen(bools(false, true), *all, these) : these;
                    }
        return *all;
    }

    static Interval of_type(const FunctionTensor& tensor, Type type) {
        if (tensor.dtype == FLASHTILE_INT32)
            return ints(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
        return anything(type);
    }

    static Interval zero(Type type) { return {type, true, 0, 0, 0.0f, 0.0f}; }

    // An element, which need not be aligned.
    template <class T>
    static T element(const FunctionTensor& tensor, std::int64_t offset) {
        T value;
        std::memcpy(&value, static_cast<const char*>(tensor.data) + offset * static_cast<std::int64_t>(sizeof value),
                    sizeof value);
        return value;
    }
    // Of `count` elements, at least one, that are `stride` apart.
    template <class T>
    static std::pair<T, T> least_and_most(const FunctionTensor& tensor, std::int64_t offset, std::int64_t count,
                                          std::int64_t stride) {
        T least = element<T>(tensor, offset), most = least;
        for (std::int64_t n = 1; n < count; ++n) {
            const T one = element<T>(tensor, offset + n * stride);
            least = one < least ? one : least;
            most = most < one ? one : most;
        }
        return {least, most};
    }
    static Interval line(const FunctionTensor& tensor, std::int64_t offset, std::int64_t count, std::int64_t stride) {
        switch (tensor.dtype) {
            case FLASHTILE_FP32: {
                bool number = true;
                for (std::int64_t n = 0; n < count; ++n) {
                    const auto one = element<float>(tensor, offset + n * stride);
                    number &= one == one;
                }
                if (!number) return anything(Type::real);
                const auto [least, most] = least_and_most<float>(tensor, offset, count, stride);
                return reals(least, most);
            }
            case FLASHTILE_FP16:
            case FLASHTILE_BF16:
                return anything(Type::real);
            case FLASHTILE_INT64: {
                const auto [least, most] = least_and_most<std::int64_t>(tensor, offset, count, stride);
                return ints(least, most);
            }
            case FLASHTILE_INT32: {
                const auto [least, most] = least_and_most<std::int32_t>(tensor, offset, count, stride);
                return ints(least, most);
            }
            default: {
                const auto [least, most] = least_and_most<std::uint8_t>(tensor, offset, count, stride);
                return bools(least != 0, most != 0);
            }
        }
    }

    const Graph& graph_;
    const FunctionTensor* tensors_;
    Given given_;
    std::array<Interval, kMostNodes> values_;  // of the nodes so far
};

}  // namespace

Visible visible(const Graph& graph, int mask, const FunctionTensor* tensors, const Region& region) {
    const Interval shown = Evaluation(graph, tensors, region).of(mask);
    return shown.high == 0 ? Visible::none : shown.low == 1 ? Visible::all : Visible::some;
}

bool may_hide(const Graph& graph, int score, const FunctionTensor* tensors, const Region& region) {
    const Interval given = Evaluation(graph, tensors, region).of(score);
    return !given.known || given.least <= kHiddenScore;
}

std::vector<IntBounds> bounds_near(const Graph& graph, const std::vector<TensorType>& types, std::int64_t near) {
    std::array<FunctionTensor, kMostTensors> tensors{};  // unknown but for their types
    for (std::size_t n = 0; n < types.size(); ++n) tensors[n].dtype = static_cast<std::int32_t>(types[n].dtype);
    const Interval any = ints(0, near - 1);
    Evaluation evaluation(graph, tensors.data(), Given{any, any, any, any, any, any});
    if (graph.size() > 0) evaluation.of(graph.size() - 1);
    std::vector<IntBounds> bounds;
    for (int n = 0; n < graph.size(); ++n)
        bounds.push_back(graph[n].type == Type::integer ? IntBounds{evaluation[n].low, evaluation[n].high}
                                                        : IntBounds{kLeast, kGreatest});
    return bounds;
}

bool fits_32_bits(const Graph& graph, const FunctionTensor* tensors, const Region& region) {
    return Evaluation(graph, tensors, region).fits_32_bits();
}

Visible visible(const FunctionsView& view, const Region& region) {
    return visible(view.functions->mask_graph(), view.functions->mask(), view.tensors, region);
}

bool may_hide(const FunctionsView& view, const Region& region) {
    return may_hide(view.functions->score_graph(), view.functions->score(), view.tensors, region);
}

bool fits_32_bits(const FunctionsView& view, const Region& region) {
    return fits_32_bits(view.functions->score_graph(), view.tensors, region) &&
           fits_32_bits(view.functions->mask_graph(), view.tensors, region);
}

}  // namespace flashtile::functions
