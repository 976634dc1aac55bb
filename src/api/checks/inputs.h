// inputs.h: the checks of flashtile_inputs: what forward and backward share.
#pragma once

#include "api/checks/memory_use.h"
#include "api/validate.h"

namespace flashtile::api {

// A call while its arguments are checked, one group after the other.
struct CallUnderCheck {
    Call call;
    flashtile_options options{};  // complete, as read_options makes them
    flashtile_inputs inputs{};    // likewise
    MemoryUse memory;
    bool tensors_have_memory = true;  // false: only shapes and addresses count, and no value is read
};

// Fills call.problem, call.operands and the device from the inputs; call.problem has the options already.
void check_inputs(const flashtile_inputs* given, CallUnderCheck& c);

}  // namespace flashtile::api
