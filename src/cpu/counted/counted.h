// counted.h: the unit that counts what its kernels move. It is none of the library's instruction sets.
#pragma once

#include "cpu/kernels.h"

namespace flashtile::cpu {

const Kernels& counted_kernels();

}  // namespace flashtile::cpu
