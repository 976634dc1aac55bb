// random_function.h: texts of random score and mask functions, each of the right type, over the tensors of
// function_tensors.h.
#pragma once

#include <string>

#include "conformance/random_source.h"

namespace flashtile::conformance {

std::string random_score_function(RandomSource& random);
std::string random_mask_function(RandomSource& random);

}  // namespace flashtile::conformance
