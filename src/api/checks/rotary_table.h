// rotary_table.h: the checks of rotary_cos and rotary_sin, the table by whose rows heads are rotated.
#pragma once

#include "api/checks/tensor_argument.h"

namespace flashtile::api {

// (positions, angles) both, for heads of `head_dim` columns from column `begin` on. They lie where `like` does.
void check_rotary_table(const TensorArgument& cos, const TensorArgument& sin, const TensorArgument& like,
                        std::int64_t head_dim, std::int64_t begin);

}  // namespace flashtile::api
