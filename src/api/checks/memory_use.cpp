// memory_use.cpp: see memory_use.h.
#include "api/checks/memory_use.h"

#include "api/checks/refuse.h"
#include "api/overlap.h"

namespace flashtile::api {
namespace {

// Room for all that a backward pass has, so that a call allocates once for each list.
constexpr std::size_t kMostInputs = 20, kMostOutputs = 5;

constexpr const char* kAllowed = "memory of its own";

}  // namespace

MemoryUse::MemoryUse() {
    inputs_.reserve(kMostInputs);
    outputs_.reserve(kMostOutputs);
}

void MemoryUse::add(const MemoryUse& other) {
    inputs_.insert(inputs_.end(), other.inputs_.begin(), other.inputs_.end());
    outputs_.insert(outputs_.end(), other.outputs_.begin(), other.outputs_.end());
}

void MemoryUse::check(const Execution& execution) const {
    for (std::size_t n = 0; n < outputs_.size(); ++n) {
        const TensorArgument& out = outputs_[n];
        if (overlaps_itself(*out))
            refuse(text(out.name(), ".stride"), "such that elements share memory", "distinct elements");
        for (const TensorArgument& in : inputs_)
            if (overlap(*out, *in)) refuse(out.name(), text("overlapping ", in.name()), kAllowed);
        for (std::size_t other = 0; other < n; ++other)
            if (overlap(*out, *outputs_[other]))
                refuse(out.name(), text("overlapping ", outputs_[other].name()), kAllowed);
    }
    if (execution.workspace == nullptr) return;
    for (const auto* tensors : {&inputs_, &outputs_})
        for (const TensorArgument& tensor : *tensors)
            if (overlaps_bytes(*tensor, execution.workspace, execution.workspace_size))
                refuse("workspace", text("overlapping ", tensor.name()), kAllowed);
}

}  // namespace flashtile::api
