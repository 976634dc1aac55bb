// moves.h: where a kernel brings rows from slow memory into fast memory, and where it takes rows back, it says so to
// count_load and count_store. Slow memory holds the tensors of a call and what its tasks share (BackwardState). Fast
// memory holds what one task works on: its scratch, and the block of K and V that it reads in place. Only the unit of
// src/cpu/counted counts. In the library such a line is discarded before code is made of it: the machine code is the
// same with and without.
#pragma once

#include "cpu/moved.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

using counting::count_load;
using counting::count_store;
using counting::Moved;

#if defined(FLASHTILE_COUNTED)
constexpr bool kCounted = true;
#else
constexpr bool kCounted = false;
#endif

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
