// prelude.h: CUDA C++ for the host's compiler: what NVRTC knows without any header and flashtile's kernels use. It
// comes before every kernel that the emulated NVRTC compiles.
#pragma once

#include "emulator/runtime.h"

// The driver hands over the first when it loads the kernel, and sets the second whenever another CUDA thread goes on.
static const emulator::Runtime* emulator_runtime;
static const emulator::Thread* emulator_thread;
extern "C" __attribute__((visibility("default"))) const emulator::Thread** emulator_bind(
    const emulator::Runtime* given) {
    emulator_runtime = given;
    return &emulator_thread;
}

#define FLASHTILE_EMULATOR 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __device__
#define __host__
#define __global__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)

#define threadIdx (emulator_thread->thread)
#define blockIdx (emulator_thread->block)
#define blockDim (emulator_thread->threads)
#define gridDim (emulator_thread->blocks)
constexpr int warpSize = 32;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
    return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

inline unsigned __float_as_uint(float x) {
    return __builtin_bit_cast(unsigned, x);
}
inline int __float_as_int(float x) {
    return __builtin_bit_cast(int, x);
}
inline float __uint_as_float(unsigned x) {
    return __builtin_bit_cast(float, x);
}
inline float __int_as_float(int x) {
    return __builtin_bit_cast(float, x);
}

// Arithmetic: rounded to nearest, one rounding an operation.
inline float fmaf(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
inline double fma(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
inline float __fmaf_rn(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float fabsf(float x) {
    return __builtin_fabsf(x);
}
inline float fmaxf(float a, float b) {  // the one that is no NaN
    return a > b || b != b ? a : b;
}
inline float fminf(float a, float b) {
    return a < b || b != b ? a : b;
}
inline float tanhf(float x) {
    return __builtin_tanhf(x);
}
inline double exp(double x) {
    return __builtin_exp(x);
}
inline double log1p(double x) {
    return __builtin_log1p(x);
}
inline float expf(float x) {
    return __builtin_expf(x);
}
inline float exp2f(float x) {
    return __builtin_exp2f(x);
}
inline float logf(float x) {
    return __builtin_logf(x);
}
inline float log2f(float x) {
    return __builtin_log2f(x);
}
inline double log(double x) {
    return __builtin_log(x);
}
inline float sqrtf(float x) {
    return __builtin_sqrtf(x);
}
inline int min(int a, int b) {
    return a < b ? a : b;
}
inline int max(int a, int b) {
    return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
    return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
    return a > b ? a : b;
}

// Integers.
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int shift = 0; shift < 32; shift += 8) sum += (a >> shift & 0xFF) * (b >> shift & 0xFF);
    return sum;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int n = 0; n < 4; ++n) result |= static_cast<unsigned>(both >> (selector >> 4 * n & 7) * 8 & 0xFF) << 8 * n;
    return result;
}

// Two halves of 16 bits each.
namespace emulator {
template <class Each>
unsigned each_half(Each each) {
    return (each(0) & 0xFFFF) | (each(16) & 0xFFFF) << 16;
}
}  // namespace emulator
inline unsigned __vmaxu2(unsigned a, unsigned b) {
    return emulator::each_half([&](int n) { return max(a >> n & 0xFFFF, b >> n & 0xFFFF); });
}
inline unsigned __vneg2(unsigned a) {
    return emulator::each_half([&](int n) { return 0 - (a >> n & 0xFFFF); });
}
inline unsigned __viaddmin_u16x2(unsigned a, unsigned b, unsigned c) {
    return emulator::each_half([&](int n) { return min(((a >> n) + (b >> n)) & 0xFFFF, c >> n & 0xFFFF); });
}

// Threads that wait for each other.
inline void __syncthreads() {
    emulator_runtime->sync_threads(true);
}
inline int __syncthreads_or(int x) {
    return !emulator_runtime->sync_threads(x == 0);
}
inline void __syncwarp(unsigned mask = ~0u) {
    emulator_runtime->sync_warp(mask);
}
namespace emulator {
inline unsigned lane() {
    return threadIdx.x % 32;
}
template <class T>
T shuffle(unsigned mask, T x, unsigned from_lane) {
    if constexpr (sizeof(T) == 4) {
        return __builtin_bit_cast(T, emulator_runtime->shuffle(mask, __builtin_bit_cast(unsigned, x), from_lane));
    } else {
        static_assert(sizeof(T) == 8, "a shuffle of 4 or 8 bytes");
        const auto bits = __builtin_bit_cast(unsigned long long, x);
        const unsigned long long low = emulator_runtime->shuffle(mask, static_cast<unsigned>(bits), from_lane);
        const unsigned long long high = emulator_runtime->shuffle(mask, static_cast<unsigned>(bits >> 32), from_lane);
        return __builtin_bit_cast(T, high << 32 | low);
    }
}
}  // namespace emulator
template <class T>
T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
    const unsigned first = emulator::lane() & ~static_cast<unsigned>(width - 1);
    return emulator::shuffle(mask, x, first + (static_cast<unsigned>(from) & static_cast<unsigned>(width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int distance, int width = 32) {
    const unsigned from = emulator::lane() ^ static_cast<unsigned>(distance);
    const unsigned end = (emulator::lane() & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
    return emulator::shuffle(mask, x, from < end ? from : emulator::lane());
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned distance, int width = 32) {
    const unsigned own = emulator::lane(), in_group = own & static_cast<unsigned>(width - 1);
    return emulator::shuffle(mask, x, in_group >= distance ? own - distance : own);
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned distance, int width = 32) {
    const unsigned own = emulator::lane(), in_group = own & static_cast<unsigned>(width - 1);
    return emulator::shuffle(mask, x, in_group + distance < static_cast<unsigned>(width) ? own + distance : own);
}
inline unsigned __ballot_sync(unsigned mask, bool x) {
    return emulator_runtime->ballot(mask, x);
}
inline int __any_sync(unsigned mask, bool x) {
    return emulator_runtime->ballot(mask, x) != 0;
}
inline int __all_sync(unsigned mask, bool x) {
    return (emulator_runtime->ballot(mask, !x) & mask) == 0;
}

// One host thread runs all CUDA threads in turns, and none is interrupted here: what a function does is atomic.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {
    emulator_runtime->rest();
}
inline long long clock64() {
    return emulator_runtime->clock();
}
inline int clock() {
    return static_cast<int>(clock64());
}
namespace emulator {
template <class T, class New>
T exchange(T* at, New value_of) {
    emulator_runtime->rest();
    const T before = *at, after = value_of(before);
    *at = after;
    if (after != before) emulator_runtime->changed();
    return before;
}
}  // namespace emulator
template <class T>
T atomicAdd(T* at, T x) {
    return emulator::exchange(at, [&](T before) { return before + x; });
}
template <class T>
T atomicOr(T* at, T x) {
    return emulator::exchange(at, [&](T before) { return before | x; });
}
template <class T>
T atomicAnd(T* at, T x) {
    return emulator::exchange(at, [&](T before) { return before & x; });
}
template <class T>
T atomicMax(T* at, T x) {
    return emulator::exchange(at, [&](T before) { return before > x ? before : x; });
}
template <class T>
T atomicMin(T* at, T x) {
    return emulator::exchange(at, [&](T before) { return before < x ? before : x; });
}
template <class T>
T atomicExch(T* at, T x) {
    return emulator::exchange(at, [&](T) { return x; });
}
template <class T>
T atomicCAS(T* at, T expected, T x) {
    return emulator::exchange(at, [&](T before) { return before == expected ? x : before; });
}
template <class T>
T __ldg(const T* at) {
    return *at;
}

// Shared memory: addresses of 32 bits beside ordinary pointers.
inline unsigned long __cvta_generic_to_shared(const void* pointer) {
    return static_cast<unsigned long>(static_cast<const unsigned char*>(pointer) - emulator_thread->shared) +
           emulator_thread->shared_first;
}
namespace emulator {
// What lies at a shared address. The launch fails where it is not aligned, or reaches out of the block's memory.
template <class T>
T* shared(unsigned address, unsigned bytes = sizeof(T)) {
    const unsigned offset = address - emulator_thread->shared_first;
    if (offset > emulator_thread->shared_bytes || bytes > emulator_thread->shared_bytes - offset)
        emulator_runtime->fail("uses a shared address outside the thread block's memory:", address);
    if (address % alignof(T) != 0) emulator_runtime->fail("uses a shared address that is not aligned:", address);
    return reinterpret_cast<T*>(emulator_thread->shared + offset);
}

// Calls a kernel of one parameter, which lies where the launch says.
template <class Parameter>
void call(void (*kernel)(Parameter), void* const* parameters) {
    kernel(*static_cast<const Parameter*>(parameters[0]));
}
template <class Parameter>
constexpr unsigned parameter_bytes(void (*)(Parameter)) {
    return sizeof(Parameter);
}
}  // namespace emulator
