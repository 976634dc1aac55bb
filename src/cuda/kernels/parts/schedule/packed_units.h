// packed_units.h: units of so many rows of a packed batch, if each sequence starts at a unit of its own and may waste
// one. Where a sequence's units begin takes no sum over all sequences. (Sequence::first_unit counts alike.)
#pragma once

#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

struct PackedUnits {
    const DeviceLengths& starts;  // cumulative lengths
    Index total;                  // rows
    int rows, batch;

    // How many units are before sequence b.
    __device__ __forceinline__ Index before(Index b) const {
        const Index row = b < batch ? value_at(starts, b) : total;
        return greater(0, smaller(row, total)) / rows + b;
    }

    // The sequence that a unit belongs to, where cumulative lengths are in order.
    __device__ __forceinline__ Index sequence_of(Index unit) const {
        Index b = 0, end = batch;
        while (end - b > 1) {
            const Index middle = b + (end - b) / 2;
            (before(middle) <= unit ? b : end) = middle;
        }
        return b;
    }
};

}  // namespace flashtile
