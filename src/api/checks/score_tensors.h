// score_tensors.h: the checks of the tensors that change scores: ALiBi's slopes, the bias and the mask.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

void check_score_tensors(CallUnderCheck& c);

}  // namespace flashtile::api
