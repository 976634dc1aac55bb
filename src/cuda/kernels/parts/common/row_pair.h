// row_pair.h: a number for each of the two rows that a lane holds of a tile of 16. The two live in neighbouring
// registers, one even and one odd. Instructions that read them in turn then find them in the operand cache. Left to
// itself, ptxas may put both in the same bank, and then half of a softmax's FFMAs wait for that bank.
#pragma once

#include "cuda/kernels/ptx/register_pair.h"

namespace flashtile {

class RowPair {
public:
    __device__ __forceinline__ void set(float first, float second) { both_ = ptx::join(first, second); }
    __device__ __forceinline__ void set(int half, float x) {
        if (half == 0)
            set(x, (*this)[1]);
        else
            set((*this)[0], x);
    }
    __device__ __forceinline__ float operator[](int half) const {
        const float2 both = ptx::split(both_);
        return half == 0 ? both.x : both.y;
    }

private:
    unsigned long long both_;
};

}  // namespace flashtile
