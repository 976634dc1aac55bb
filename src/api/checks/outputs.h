// outputs.h: the checks of what a call writes, and of what backward reads beside the inputs. They come last: no output
// may lie in memory that something else of the call uses.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

void check_forward_outputs(const flashtile_forward_outputs* given, CallUnderCheck& c);
void check_gradients(const flashtile_gradients* given, CallUnderCheck& c);

// There are no gradients of a cache.
void refuse_what_forward_alone_takes(const CallUnderCheck& c);

// The mask that flashtile_dropout_mask writes: its shape is the problem.
void check_keep(const flashtile_tensor* keep, CallUnderCheck& c);

}  // namespace flashtile::api
