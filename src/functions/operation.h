// operation.h: the operations and types of functions. It includes no std template, since the CPU's kernels include it.
#pragma once

#include <cstdint>

namespace flashtile::functions {

enum class Type : std::uint8_t { boolean, integer, real };

enum class Op : std::uint8_t {
    constant,
    s,  // what a function is given
    b,
    h,
    i,
    j,
    seqlen_q,
    seqlen_k,
    load,  // of a tensor, at its arguments
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    remainder,
    negate,
    minimum,
    maximum,
    absolute,
    shift_left,
    shift_right,
    bit_and,  // of ints, and of bools
    bit_or,
    bit_xor,
    bit_not,
    less,
    less_equal,
    equal,
    not_equal,
    select,
    exp,
    log,
    tanh,
    sqrt,
    convert,  // to the node's type
};

constexpr int kMostDimensions = 4;
constexpr int kMostTensors = 8;

}  // namespace flashtile::functions
