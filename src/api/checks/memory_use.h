// memory_use.h: the memory that a call reads and writes, and the check that no output lies in memory that the call uses
// for something else.
#pragma once

#include <cstddef>
#include <vector>

#include "api/checks/tensor_argument.h"

namespace flashtile::api {

class MemoryUse {
public:
    MemoryUse();

    void reads(const TensorArgument& tensor) { inputs_.push_back(tensor); }
    void writes(const TensorArgument& tensor) { outputs_.push_back(tensor); }
    void add(const MemoryUse& other);

    // Every output has elements that are distinct and that no other tensor shares; no tensor lies in the workspace.
    void check(const Execution& execution) const;

private:
    std::vector<TensorArgument> inputs_, outputs_;
};

}  // namespace flashtile::api
