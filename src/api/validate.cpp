// validate.cpp: the order in which a call's arguments are checked. The checks of each group are in checks/.
#include "api/validate.h"

#include "api/checks/inputs.h"
#include "api/checks/options.h"
#include "api/checks/outputs.h"
#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

CallUnderCheck with_options(const flashtile_options* given) {
    CallUnderCheck c;
    c.options = read_options(given);
    c.call.problem = check_problem_options(c.options);
    c.call.execution = check_execution(c.options);
    c.call.operands.seed = c.options.seed;
    c.call.operands.offset = c.options.offset;
    c.call.operands.seed_ptr = c.options.seed_ptr;
    c.call.operands.offset_ptr = c.options.offset_ptr;
    return c;
}

}  // namespace

Call validate_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                      const flashtile_forward_outputs* outputs) {
    CallUnderCheck c = with_options(options);
    check_inputs(inputs, c);
    check_forward_outputs(outputs, c);
    return c.call;
}

Call validate_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                       const flashtile_gradients* gradients) {
    CallUnderCheck c = with_options(options);
    check_inputs(inputs, c);
    check_gradients(gradients, c);
    return c.call;
}

Call validate_inputs(const flashtile_options* options, const flashtile_inputs* inputs, bool backward) {
    CallUnderCheck c = with_options(options);
    c.tensors_have_memory = false;
    check_inputs(inputs, c);
    if (backward) refuse_what_forward_alone_takes(c);
    return c.call;
}

Call validate_dropout_mask(const flashtile_options* options, const flashtile_tensor* origins_i,
                           const flashtile_tensor* origins_j, const flashtile_tensor* keep) {
    CallUnderCheck c = with_options(options);
    c.inputs.origins_i = origins_i;
    c.inputs.origins_j = origins_j;
    check_keep(keep, c);
    return c.call;
}

}  // namespace flashtile::api
