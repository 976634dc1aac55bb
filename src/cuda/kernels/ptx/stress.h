// stress.h: waits of random length before every step by which warps and thread blocks keep order, so that an order
// which merely happens to hold breaks. The rendered source sets kStressSeed before it includes anything. It is 0 unless
// FLASHTILE_KERNEL_STRESS asks for more, and with 0 nothing of this is in the kernel.
#pragma once

namespace flashtile::ptx {

// Three steps of four go on at once; the others wait up to 4 us, which is several times what a block of keys takes. The
// clock serves as the counter, since it differs at every step and takes no register in between. There is no branch,
// since what follows may need the whole warp.
__device__ __forceinline__ void stress() {
    if constexpr (kStressSeed != 0) {
        unsigned x = kStressSeed * 0x9E3779B9u + blockIdx.x * 0x85EBCA6Bu + threadIdx.x / 32 * 0xC2B2AE35u +
                     static_cast<unsigned>(clock());
        x = (x ^ x >> 16) * 0x7FEB352Du;
        x = (x ^ x >> 15) * 0x846CA68Bu;
        __nanosleep(x % 4 == 0 ? x >> 20 : 0);
    }
}

}  // namespace flashtile::ptx
