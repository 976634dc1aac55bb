// derivative.cpp: forward-mode differentiation. A node that does not depend on what is differentiated by has no
// derivative, so no 0 * infinity arises.
#include "functions/derivative.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace flashtile::functions {
namespace {

class Derivatives {
public:
    Derivatives(Graph& graph, int by) : graph_(graph), by_(by) {}

    std::optional<int> of(int root) {
        std::vector<std::optional<int>> known(static_cast<std::size_t>(root) + 1);
        for (int n = 0; n <= root; ++n) {
            const Node node = graph_[n];  // a copy: the graph grows
            std::array<std::optional<int>, kMostDimensions> d;
            for (int a = 0; a < node.arguments; ++a)
                d[static_cast<std::size_t>(a)] =
                    known[static_cast<std::size_t>(node.argument[static_cast<std::size_t>(a)])];
            known[static_cast<std::size_t>(n)] = step(n, node, d);
        }
        return known.back();
    }

private:
    using Optional = std::optional<int>;

    int real(Op op, std::initializer_list<int> arguments) { return graph_.add(op, Type::real, arguments); }
    int one() { return graph_.constant(1.0f); }
    int zero() { return graph_.constant(0.0f); }

    Optional times(Optional d, int factor) {
        if (!d) return d;
        return *d == one() ? factor : real(Op::multiply, {*d, factor});
    }
    Optional negated(Optional d) { return d ? Optional(real(Op::negate, {*d})) : d; }
    Optional sum(Optional a, Optional b) {
        if (!a) return b;
        return b ? Optional(real(Op::add, {*a, *b})) : a;
    }
    Optional chosen(int condition, Optional yes, Optional no) {
        if (!yes && !no) return {};
        return real(Op::select, {condition, yes.value_or(zero()), no.value_or(zero())});
    }
    Optional over(Optional d, int divisor) { return d ? Optional(real(Op::divide, {*d, divisor})) : d; }

    Optional step(int n, const Node& node, const std::array<Optional, kMostDimensions>& d) {
        const auto& x = node.argument;
        const auto less = [&](int a, int b) { return graph_.add(Op::less, Type::boolean, {a, b}); };
        if (n == by_) return one();
        if (node.type != Type::real || std::ranges::none_of(d, &Optional::has_value)) return {};
        switch (node.op) {
            case Op::add:
                return sum(d[0], d[1]);
            case Op::subtract:
                return sum(d[0], negated(d[1]));
            case Op::multiply:
                return sum(times(d[0], x[1]), times(d[1], x[0]));
            case Op::divide:
                return over(sum(d[0], negated(times(d[1], n))), x[1]);
            case Op::negate:
                return negated(d[0]);
            case Op::minimum:
                return chosen(less(x[1], x[0]), d[1], d[0]);
            case Op::maximum:
                return chosen(less(x[0], x[1]), d[1], d[0]);
            case Op::absolute:
                return chosen(less(x[0], zero()), negated(d[0]), d[0]);
            case Op::select:
                return chosen(x[0], d[1], d[2]);
            case Op::exp:
                return times(d[0], n);
            case Op::log:
                return over(d[0], x[0]);
            case Op::tanh:
                return times(d[0], real(Op::subtract, {one(), real(Op::multiply, {n, n})}));
            case Op::sqrt:
                return over(d[0], real(Op::add, {n, n}));
            default:
                return {};  // s and loads that are not by_, and conversions of what has no derivative
        }
    }

    Graph& graph_;
    int by_;
};

}  // namespace

std::optional<int> derivative_by(Graph& graph, int root, int n) {
    return Derivatives(graph, n).of(root);
}

int derivative_by_s(Graph& graph, int root) {
    int s = 0;
    while (s <= root && graph[s].op != Op::s) ++s;
    const std::optional<int> derivative = s <= root ? derivative_by(graph, root, s) : std::nullopt;
    return derivative ? *derivative : graph.constant(0.0f);
}

}  // namespace flashtile::functions
