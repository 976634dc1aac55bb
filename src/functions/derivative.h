// derivative.h: the derivatives of a function by s and by what it loads, as nodes of the same graph.
#pragma once

#include <optional>

#include "functions/graph.h"

namespace flashtile::functions {

// The node that holds d root / d n, n being a node of type real, or nothing where root does not depend on it. Where a
// derivative does not exist it is that of the branch taken.
std::optional<int> derivative_by(Graph& graph, int root, int n);

// By the score; a constant 0 where root does not depend on it.
int derivative_by_s(Graph& graph, int root);

}  // namespace flashtile::functions
