// fp32_math.h: the arithmetic of fp32, in which every dtype can be multiplied. An arithmetic says what a scalar of an
// operand is and how two are multiplied; the products of src/cpu/kernels take it as their parameter `Math`.
#pragma once

#include "cpu/isa/vector.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// The session of an arithmetic that needs no setup (compare TileSession).
struct NoSession {
    NoSession() {}
};

// An element as it lies in memory.
struct Bf16 {
    uint16_t bits;
};
struct E4m3 {
    uint8_t bits;
};

struct Fp32Math {
    using Session = NoSession;
    using Scalar = float;
    using Operand = Vec;
    static constexpr bool kTiles = false;
    static constexpr int kPack = 1;   // elements of the reduction in one Scalar
    static constexpr int kStep = 1;   // elements of the reduction in one step; zeros fill an operand's last step
    static constexpr int kParts = 1;  // Scalars that hold one word of operands

    // Some vectors of words of an operand, from e4m3, of which they are 1 / kE4m3.
    static constexpr float kE4m3 = kE4m3Unit;
    static constexpr int kE4m3Vectors = 2;
    static void load_e4m3(const uint8_t* p, Operand (&x)[kE4m3Vectors]) { widen_e4m3(p, x[0], x[1]); }
    static Operand load_panel(const Scalar* b) { return load(b); }
    static Operand spread(const Scalar* a) { return broadcast(*a); }
    static Vec multiply_add(Operand a, Operand b, Vec c) { return a * b + c; }
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
