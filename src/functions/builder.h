// builder.h: makes a Program of nodes of a graph.
#pragma once

#include <vector>

#include "functions/graph.h"
#include "functions/program.h"

namespace flashtile::functions {

class BuiltProgram {
public:
    BuiltProgram() = default;
    // Of `result`, and of `derivative` where that is not -1.
    BuiltProgram(const Graph& graph, int result, int derivative);

    const Program& view() const { return program_; }

private:
    std::vector<Step> steps_;
    Program program_;
};

}  // namespace flashtile::functions
