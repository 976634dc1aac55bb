// counted_math.h: fp32_math.h without the multiplications, which leaves no loop of a product.
#pragma once

#include "cpu/isa/fp32_math.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct CountedMath : Fp32Math {
    static Vec multiply_add(Operand, Operand, Vec c) { return c; }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
