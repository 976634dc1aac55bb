// interval.cpp: see interval.h. The operations are shared/intervals.h's.
#include "functions/interval.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "flashtile/flashtile.h"
#include "functions/functions.h"
#include "shared/intervals.h"

namespace flashtile::functions {
namespace {

// Elements of a tensor that are looked through for their least and greatest.
constexpr std::int64_t kMostElements = 4096;

// What a score function is taken to be given. Beyond it products of q and k hide keys as well as functions do.
constexpr float kLargestScore = 1e20f;

using intervals::Bools;
using intervals::Ints;
using intervals::Reals;

// Of the node's type.
struct Interval {
    Bools bools{};
    Ints ints{};
    Reals reals{};

    Interval() = default;
    Interval(Bools of) : bools(of) {}
    Interval(Ints of) : ints(of) {}
    Interval(Reals of) : reals(of) {}
};

Interval anything(Type type) {
    switch (type) {
        case Type::boolean:
            return intervals::any_bool();
        case Type::integer:
            return intervals::any_int();
        case Type::real:
            return intervals::any_real();
    }
    return {};
}

// Bounds of what functions are given.
struct Given {
    Ints b, h, i, j, seqlen_q, seqlen_k;

    static Given of(const Region& r) {
        const auto one = [](std::int64_t value) { return Ints{value, value}; };
        return {one(r.b), one(r.h), {r.i0, r.i1 - 1}, {r.j0, r.j1 - 1}, one(r.seqlen_q), one(r.seqlen_k)};
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
            if (node.type == Type::integer && !within((*this)[n].ints, std::numeric_limits<std::int32_t>::min(),
                                                      std::numeric_limits<std::int32_t>::max()))
                return false;
            if ((node.op == Op::shift_left || node.op == Op::shift_right) && !within(argument(node, 1).ints, 0, 31))
                return false;
        }
        return true;
    }

private:
    static bool within(const Ints& value, std::int64_t low, std::int64_t high) {
        return value.low >= low && value.high <= high;
    }

    const Interval& argument(const Node& node, int n) const {
        return values_[static_cast<std::size_t>(node.argument[static_cast<std::size_t>(n)])];
    }

    Interval step(const Node& node) const {
        namespace on = intervals;
        const Interval none;
        const Interval& a = node.arguments > 0 ? argument(node, 0) : none;
        const Interval& b = node.arguments > 1 ? argument(node, 1) : none;
        const Type of = node.arguments > 0 ? graph_[node.argument[0]].type : node.type;
        const auto numbers = [&](auto operation) -> Interval {
            if (of == Type::integer) return operation(a.ints, b.ints);
            return operation(a.reals, b.reals);
        };
        const auto bits = [&](auto operation) -> Interval {
            if (of == Type::integer) return operation(a.ints, b.ints);
            return operation(a.bools, b.bools);
        };
        const auto any_two = [&](auto operation) -> Interval {
            return of == Type::boolean ? operation(a.bools, b.bools) : numbers(operation);
        };
        switch (node.op) {
            case Op::constant:
                if (node.type == Type::real) return on::only(node.real);
                if (node.type == Type::boolean) return on::only(node.integer != 0);
                return on::only(Index{node.integer});
            case Op::s:
                return on::reals(-kLargestScore, kLargestScore);
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
            case Op::add:
                return numbers([](auto x, auto y) { return on::add(x, y); });
            case Op::subtract:
                return numbers([](auto x, auto y) { return on::subtract(x, y); });
            case Op::multiply:
                return numbers([](auto x, auto y) { return on::multiply(x, y); });
            case Op::divide:
                return on::divide(a.reals, b.reals);
            case Op::floor_divide:
                return on::floor_divide(a.ints, b.ints);
            case Op::remainder:
                return on::remainder(a.ints, b.ints);
            case Op::negate:
                return numbers([](auto x, auto) { return on::negate(x); });
            case Op::minimum:
                return numbers([](auto x, auto y) { return on::minimum(x, y); });
            case Op::maximum:
                return numbers([](auto x, auto y) { return on::maximum(x, y); });
            case Op::absolute:
                return numbers([](auto x, auto) { return on::absolute(x); });
            case Op::shift_left:
                return on::shift_left(a.ints, b.ints);
            case Op::shift_right:
                return on::shift_right(a.ints, b.ints);
            case Op::bit_and:
                return bits([](auto x, auto y) { return on::bit_and(x, y); });
            case Op::bit_or:
                return bits([](auto x, auto y) { return on::bit_or(x, y); });
            case Op::bit_xor:
                return bits([](auto x, auto y) { return on::bit_xor(x, y); });
            case Op::bit_not:
                return bits([](auto x, auto) { return on::bit_not(x); });
            case Op::less:
                return any_two([](auto x, auto y) { return on::less(x, y); });
            case Op::less_equal:
                return any_two([](auto x, auto y) { return on::less_equal(x, y); });
            case Op::equal:
                return any_two([](auto x, auto y) { return on::equal(x, y); });
            case Op::not_equal:
                return any_two([](auto x, auto y) { return on::not_equal(x, y); });
            case Op::select:
                return chosen(node.type, a.bools, b, argument(node, 2));
            case Op::exp:
                return on::exp(a.reals);
            case Op::log:
                return on::log(a.reals);
            case Op::tanh:
                return on::tanh(a.reals);
            case Op::sqrt:
                return on::sqrt(a.reals);
            case Op::convert:
                return converted(node.type, of, a);
        }
        return anything(node.type);
    }

    static Interval chosen(Type type, const Bools& condition, const Interval& yes, const Interval& no) {
        switch (type) {
            case Type::boolean:
                return intervals::choose(condition, yes.bools, no.bools);
            case Type::integer:
                return intervals::choose(condition, yes.ints, no.ints);
            case Type::real:
                return intervals::choose(condition, yes.reals, no.reals);
        }
        return {};
    }

    static Interval converted(Type to, Type from, const Interval& a) {
        switch (to) {
            case Type::boolean:
                return from == Type::integer ? intervals::to_bool(a.ints) : intervals::to_bool(a.reals);
            case Type::integer:
                return from == Type::boolean ? intervals::to_int(a.bools) : intervals::to_int(a.reals);
            case Type::real:
                return from == Type::boolean ? intervals::to_real(a.bools) : intervals::to_real(a.ints);
        }
        return {};
    }

    // The least and the greatest of the elements at the arguments' intervals, and 0 if some of these lie outside.
    Interval loaded(const Node& node) const {
        const FunctionTensor& tensor = tensors_[node.tensor];
        if (tensor.data == nullptr) return of_type(tensor, node.type);
        std::int64_t first[kMostDimensions] = {}, end[kMostDimensions] = {1, 1, 1, 1}, count = 1;
        bool outside = false;
        for (int n = 0; n < node.arguments; ++n) {
            const Ints& index = argument(node, n).ints;
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
                        all = all ? chosen(node.type, intervals::any_bool(), *all, these) : these;
                    }
        return *all;
    }

    static Interval of_type(const FunctionTensor& tensor, Type type) {
        if (tensor.dtype == FLASHTILE_INT32)
            return Ints{std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
        return anything(type);
    }

    static Interval zero(Type type) { return type == Type::real ? Interval(intervals::only(0.0f)) : Interval(); }

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
                if (!number) return intervals::any_real();
                const auto [least, most] = least_and_most<float>(tensor, offset, count, stride);
                return intervals::reals(least, most);
            }
            case FLASHTILE_FP16:
            case FLASHTILE_BF16:
                return intervals::any_real();
            case FLASHTILE_INT64: {
                const auto [least, most] = least_and_most<std::int64_t>(tensor, offset, count, stride);
                return Ints{least, most};
            }
            case FLASHTILE_INT32: {
                const auto [least, most] = least_and_most<std::int32_t>(tensor, offset, count, stride);
                return Ints{least, most};
            }
            default: {
                const auto [least, most] = least_and_most<std::uint8_t>(tensor, offset, count, stride);
                return Bools{least != 0, most != 0};
            }
        }
    }

    const Graph& graph_;
    const FunctionTensor* tensors_;
    Given given_;
    std::array<Interval, kMostNodes> values_;  // of the nodes so far
};

// Tensors that are unknown but for their types.
std::array<FunctionTensor, kMostTensors> unknown(const std::vector<TensorType>& types) {
    std::array<FunctionTensor, kMostTensors> tensors{};
    for (std::size_t n = 0; n < types.size(); ++n) tensors[n].dtype = static_cast<std::int32_t>(types[n].dtype);
    return tensors;
}

}  // namespace

Visible visible(const Graph& graph, int mask, const FunctionTensor* tensors, const Region& region) {
    const Bools shown = Evaluation(graph, tensors, region).of(mask).bools;
    return !shown.high ? Visible::none : shown.low ? Visible::all : Visible::some;
}

bool may_hide(const Graph& graph, int score, const FunctionTensor* tensors, const Region& region) {
    const Reals given = Evaluation(graph, tensors, region).of(score).reals;
    return !given.known || given.low <= kHiddenScore;
}

Visible visible(const Graph& graph, int mask, const std::vector<TensorType>& types, const Region& region) {
    return visible(graph, mask, unknown(types).data(), region);
}

std::vector<IntBounds> bounds_near(const Graph& graph, const std::vector<TensorType>& types, std::int64_t near) {
    const auto tensors = unknown(types);
    const Ints any = {0, near - 1};
    Evaluation evaluation(graph, tensors.data(), Given{any, any, any, any, any, any});
    if (graph.size() > 0) evaluation.of(graph.size() - 1);
    std::vector<IntBounds> bounds;
    bounds.reserve(static_cast<std::size_t>(graph.size()));
    for (int n = 0; n < graph.size(); ++n)
        bounds.push_back(graph[n].type == Type::integer ? IntBounds{evaluation[n].ints.low, evaluation[n].ints.high}
                                                        : IntBounds{intervals::kLeastInt, intervals::kGreatestInt});
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
