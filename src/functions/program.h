// program.h: a function in the order in which the CPU evaluates it on a tile: what depends on neither query nor key
// once, what depends on the query alone once a row, on the key alone once a column, the rest for each element. The
// structs include no std template, since the CPU's kernels include them; builder.h makes them.
#pragma once

#include <cstdint>

#include "functions/operation.h"

namespace flashtile::functions {

enum class Stage : std::uint8_t { uniform, row, column, tile };
constexpr int kStages = 4;

// One operation. Buffers hold a vector of values each.
struct Step {
    Op op;
    Type type;  // of the result
    Type of;    // of the last argument
    Stage stage;
    std::int16_t out;  // a buffer
    // Of other stages than a tile's: the buffer that holds the value for each element of a tile; -1: no later stage
    // reads it.
    std::int16_t expanded;
    std::int16_t argument[kMostDimensions];
    std::int32_t tensor;
    std::int32_t rank;
    std::int64_t integer;
    float real;
};

// The derivative of a score by one of its loads, and where that lies in the tensor: buffers, that hold a value for each
// element of a tile.
struct LoadDerivative {
    std::int16_t derivative;
    std::int16_t index[kMostDimensions];
    std::int32_t tensor;
    std::int32_t rank;
};

struct Program {
    const Step* steps = nullptr;  // stage by stage
    int end[kStages] = {};        // of a stage's steps
    int buffers = 0;
    int given = -1;       // the buffer that has s from the start; -1: none
    int result = -1;      // buffers, that hold a value for each element of a tile
    int derivative = -1;  // of a score by s; -1: not computed
    const LoadDerivative* loads = nullptr;
    int load_count = 0;

    explicit operator bool() const { return steps != nullptr; }
};

// A tensor that functions read.
struct FunctionTensor {
    const void* data;
    std::int32_t dtype;  // flashtile_dtype
    std::int32_t rank;
    std::int64_t shape[kMostDimensions];
    std::int64_t stride[kMostDimensions];  // in elements
};

// The gradient of such a tensor, which has its shape; fp32.
struct TensorGradient {
    float* data = nullptr;  // null: it is not asked for
    std::int64_t stride[kMostDimensions] = {};

    explicit operator bool() const { return data != nullptr; }
};

// Where a tile lies: queries [i0, i1) and keys [j0, j1), by the coordinates of the whole problem.
struct Region {
    std::int64_t b, h, i0, i1, j0, j1, seqlen_q, seqlen_k;
};

enum class Visible : std::uint8_t { none, all, some };

class Functions;

// What a call's functions say: a view for the kernels.
struct FunctionsView {
    const Functions* functions = nullptr;
    // gradient: the score with its derivative by s; by_loads: with those by its loads of floats.
    Program score, gradient, mask, by_loads;
    const FunctionTensor* tensors = nullptr;
};

// What the mask function shows of a region, as far as intervals tell.
Visible visible(const FunctionsView& view, const Region& region);
// Whether the score function may hide a key there, of scores that are themselves of ordinary size.
bool may_hide(const FunctionsView& view, const Region& region);
// Whether no int of the functions passes 32 bits there.
bool fits_32_bits(const FunctionsView& view, const Region& region);

// Buffers that the largest program of the functions with this number needs, by_loads aside; none of number 0.
int most_buffers(int number);
// The functions with this number as they read `tensors`; empty of number 0.
FunctionsView view_of(int number, const FunctionTensor* tensors);

}  // namespace flashtile::functions
