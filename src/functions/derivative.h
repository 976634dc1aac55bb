// derivative.h: the derivative of a function by s, as nodes of the same graph.
#pragma once

#include "functions/graph.h"

namespace flashtile::functions {

// The node that holds d root / d s; a constant 0 where root does not depend on s. Where a derivative does not exist
// it is that of the branch taken.
int derivative_by_s(Graph& graph, int root);

}  // namespace flashtile::functions
