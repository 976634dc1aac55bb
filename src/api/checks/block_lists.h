// block_lists.h: the checks of flashtile_inputs.block_lists: which blocks of the scores are seen.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

void check_block_lists(CallUnderCheck& c);

}  // namespace flashtile::api
