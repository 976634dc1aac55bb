// interval.h: what a mask function may give for a block of queries and keys, found by evaluating it on intervals: the
// least and the greatest value that each node may have there. It may say "some" where it does not know.
#pragma once

#include <cstdint>
#include <vector>

#include "functions/graph.h"
#include "functions/parse.h"
#include "functions/program.h"

namespace flashtile::functions {

Visible visible(const Graph& graph, int mask, const FunctionTensor* tensors, const Region& region);
// Whatever tensors hold.
Visible visible(const Graph& graph, int mask, const std::vector<TensorType>& tensors, const Region& region);
bool may_hide(const Graph& graph, int score, const FunctionTensor* tensors, const Region& region);
bool fits_32_bits(const Graph& graph, const FunctionTensor* tensors, const Region& region);

struct IntBounds {
    std::int64_t low, high;
};

// Of each node that is an int: what it may be where positions, lengths and the rest that functions are given are at
// least 0 and less than `near`, whatever tensors hold.
std::vector<IntBounds> bounds_near(const Graph& graph, const std::vector<TensorType>& tensors, std::int64_t near);

}  // namespace flashtile::functions
