// functions.h: the checks of the user's score and mask functions, and of the tensors that they name.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

void check_functions(CallUnderCheck& c);

}  // namespace flashtile::api
