// graph.cpp: see graph.h.
#include "functions/graph.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace flashtile::functions {

bool Node::operator==(const Node& other) const {
    return op == other.op && type == other.type && arguments == other.arguments && argument == other.argument &&
           tensor == other.tensor && integer == other.integer &&
           std::bit_cast<std::uint32_t>(real) == std::bit_cast<std::uint32_t>(other.real);
}

int Graph::add(const Node& node) {
    const auto found = std::ranges::find(nodes_, node);
    if (found != nodes_.end()) return static_cast<int>(found - nodes_.begin());
    if (size() == kMostNodes) throw std::length_error("too many operations");
    nodes_.push_back(node);
    return size() - 1;
}

int Graph::add(Op op, Type type, std::initializer_list<int> arguments) {
    Node node{.op = op, .type = type, .arguments = static_cast<int>(arguments.size())};
    std::ranges::copy(arguments, node.argument.begin());
    return add(node);
}

int Graph::constant(std::int64_t value) {
    return add(Node{.type = Type::integer, .integer = value});
}

int Graph::constant(float value) {
    return add(Node{.type = Type::real, .real = value});
}

int Graph::constant(bool value) {
    return add(Node{.type = Type::boolean, .integer = value ? 1 : 0});
}

}  // namespace flashtile::functions
