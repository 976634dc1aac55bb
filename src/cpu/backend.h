// backend.h: the CPU backend, the embedded default.
#pragma once

#include "core/backend.h"

namespace flashtile::cpu {

const Backend& backend();

}  // namespace flashtile::cpu
