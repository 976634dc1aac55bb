// builder.h: makes a Program of nodes of a graph.
#pragma once

#include <utility>
#include <vector>

#include "functions/graph.h"
#include "functions/program.h"

namespace flashtile::functions {

class BuiltProgram {
public:
    BuiltProgram() = default;
    // Of `result`, of `derivative` where that is not -1, and of loads, each with the derivative by it.
    BuiltProgram(const Graph& graph, int result, int derivative, const std::vector<std::pair<int, int>>& loads = {});

    const Program& view() const { return program_; }
    // The graph's nodes that the program's steps compute, in their order.
    const std::vector<int>& nodes() const { return nodes_; }

private:
    std::vector<Step> steps_;
    std::vector<int> nodes_;
    std::vector<LoadDerivative> loads_;
    Program program_;
};

}  // namespace flashtile::functions
