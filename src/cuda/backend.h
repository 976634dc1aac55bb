// backend.h: the CUDA backend. It is there in every build; without a driver or a GPU its calls say what is missing.
#pragma once

#include "core/backend.h"

namespace flashtile::gpu {

const Backend& backend();

}  // namespace flashtile::gpu
