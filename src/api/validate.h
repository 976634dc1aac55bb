// validate.h: from the arguments of the C interface to a validated Problem. The only place that checks shapes and
// types; everything below it may trust what it is given. Throws Error before anything is written. The checks
// themselves are in checks/, a file for each group of arguments.
#pragma once

#include "core/problem.h"

namespace flashtile::api {

struct Call {
    Problem problem;
    Operands operands;
    Execution execution;
};

Call validate_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                      const flashtile_forward_outputs* outputs);
Call validate_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                       const flashtile_gradients* gradients);

// For calls that run nothing: the inputs alone, whose memory is not read. `backward`: they are to be its inputs.
Call validate_inputs(const flashtile_options* options, const flashtile_inputs* inputs, bool backward);

// For flashtile_dropout_mask: the problem's sizes come from the mask itself, which is left in operands.mask.
// Origins may be NULL.
Call validate_dropout_mask(const flashtile_options* options, const flashtile_tensor* origins_i,
                           const flashtile_tensor* origins_j, const flashtile_tensor* keep);

}  // namespace flashtile::api
