// graph.h: a user's score or mask function as a typed graph of operations, each of which stands once. What the language
// means stands in docs/functions.md. parse.h makes graphs, derivative.h adds to them, program.h and interval.h
// evaluate them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "functions/operation.h"

namespace flashtile::functions {

constexpr int kMostNodes = 256;

struct Node {
    Op op = Op::constant;
    Type type = Type::real;
    int arguments = 0;
    std::array<int, kMostDimensions> argument{};  // earlier nodes
    int tensor = -1;                              // of a load
    std::int64_t integer = 0;                     // a constant's value; of a bool 0 or 1
    float real = 0.0f;

    bool operator==(const Node& other) const;  // constants by their bits
};

class Graph {
public:
    // The number of a node: an equal one's where there is one. Throws std::length_error past kMostNodes.
    int add(const Node& node);
    int add(Op op, Type type, std::initializer_list<int> arguments);
    int constant(std::int64_t value);
    int constant(float value);
    int constant(bool value);

    const Node& operator[](int n) const { return nodes_[static_cast<std::size_t>(n)]; }
    int size() const { return static_cast<int>(nodes_.size()); }

private:
    std::vector<Node> nodes_;  // each behind its arguments
};

}  // namespace flashtile::functions
