// standard_params.h: standard attention on a GPU: how its products differ, where they lie in shared memory, and what
// its kernels get at launch. Included by the host compiler and by NVRTC.
#pragma once

#include "shared/kernel_layout.h"
#include "shared/kernel_params.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// C = alpha A B for every head, in tiles of Br x Bc. How the factors lie in memory: A may lie transposed, with its
// columns as rows; B as S = Q K^T has it, with its columns as rows, or not.
struct ProductForm {
    bool a_transposed = false;
    bool b_transposed = false;  // its rows are rows

    bool operator==(const ProductForm&) const = default;
};

// Of rows and columns of C. What a tile is multiplied by comes in slices of so many columns of A.
constexpr int kProductDepth = 32;

// Elements between rows of a tile: an odd number of 16-byte pieces, as in kernel_layout.h.
constexpr int product_pitch(int columns) {
    return (columns / 8 | 1) * 8;
}
constexpr int a_tile_elements(const KernelConfig& c, const ProductForm& form) {
    return form.a_transposed ? kProductDepth * product_pitch(c.Br) : c.Br * product_pitch(kProductDepth);
}
constexpr int b_tile_elements(const KernelConfig& c, const ProductForm& form) {
    return form.b_transposed ? kProductDepth * product_pitch(c.Bc) : c.Bc * product_pitch(kProductDepth);
}
constexpr int product_shared_bytes(const KernelConfig& c, const ProductForm& form) {
    return size_of(c.element) *
           larger(c.stages * (a_tile_elements(c, form) + b_tile_elements(c, form)), c.Br * product_pitch(c.Bc));
}

// Rows of S and P take a multiple of so many elements, so that tiles of them are whole.
constexpr int kScoreColumns = 128;

struct StandardParams {
    DeviceTensor a, b, c;      // of the softmax: c is S and becomes P, or is dP and becomes dS, of which a is P
    int heads;                 // of a sequence
    Index all_heads;           // of all sequences
    int rows, columns, depth;  // of c, and what a product sums over; c's rows take the next multiple of Bc or 128
    float alpha;
    Band band;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
