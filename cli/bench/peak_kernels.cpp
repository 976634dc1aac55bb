// peak_kernels.cpp: see peak_kernels.h. Each loop holds independent accumulators in registers: enough to cover two
// units of latency 4 or 5. Each is compiled for its own instruction set by an attribute and run only where that exists.
#include "bench/peak_kernels.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flashtile::cli::bench {
namespace {

constexpr int accumulators = 12;

#if defined(__x86_64__)

bool has_avx512_bf16() {
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512f");
}

__attribute__((target("avx512f,avx512bf16"))) float dpbf16_avx512(std::int64_t iterations) {
    // 1.0 and 0.0078 in bf16, in pairs that differ, so that the multipliers do not idle on zeros.
    const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803c00));
    const __m512bh b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3c003f81));
    __m512 sum[accumulators];
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) sum[n] = _mm512_set1_ps(static_cast<float>(n));
    for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int n = 0; n < accumulators; ++n) sum[n] = _mm512_dpbf16_ps(sum[n], a, b);
    }
    __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) total = _mm512_add_ps(total, sum[n]);
    return _mm512_cvtss_f32(total);
}

bool has_avx512() {
    return __builtin_cpu_supports("avx512f");
}

__attribute__((target("avx512f"))) float fma_avx512(std::int64_t iterations) {
    const __m512 a = _mm512_set1_ps(0.999f);
    const __m512 b = _mm512_set1_ps(0.123f);
    __m512 sum[accumulators];
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) sum[n] = _mm512_set1_ps(static_cast<float>(n));
    for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int n = 0; n < accumulators; ++n) sum[n] = _mm512_fmadd_ps(sum[n], a, b);
    }
    __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) total = _mm512_add_ps(total, sum[n]);
    return _mm512_cvtss_f32(total);
}

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

__attribute__((target("avx2,fma"))) float fma_avx2(std::int64_t iterations) {
    const __m256 a = _mm256_set1_ps(0.999f);
    const __m256 b = _mm256_set1_ps(0.123f);
    __m256 sum[accumulators];
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) sum[n] = _mm256_set1_ps(static_cast<float>(n));
    for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int n = 0; n < accumulators; ++n) sum[n] = _mm256_fmadd_ps(sum[n], a, b);
    }
    __m256 total = _mm256_setzero_ps();
#pragma GCC unroll 12
    for (int n = 0; n < accumulators; ++n) total = _mm256_add_ps(total, sum[n]);
    return _mm256_cvtss_f32(total);
}

#endif

bool always() {
    return true;
}

// 16-byte vectors: one FMA each on AArch64, a multiplication and an addition on the oldest x86-64.
float fma_portable(std::int64_t iterations) {
    using Vector = float __attribute__((vector_size(16)));
    const Vector a = {0.999f, 0.999f, 0.999f, 0.999f};
    const Vector b = {0.123f, 0.123f, 0.123f, 0.123f};
    Vector sum[accumulators] = {};
    for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int n = 0; n < accumulators; ++n) sum[n] = sum[n] * a + b;
    }
    Vector total = {};
    for (int n = 0; n < accumulators; ++n) total += sum[n];
    return total[0];
}

constexpr double flops_of(int lanes, int products) {
    return 2.0 * accumulators * lanes * products;
}

const PeakKernel all_kernels[] = {
#if defined(__x86_64__)
    {"fma_fp32", has_avx512, flops_of(16, 1), fma_avx512},
    {"fma_fp32", has_avx2, flops_of(8, 1), fma_avx2},
    {"dpbf16", has_avx512_bf16, flops_of(16, 2), dpbf16_avx512},
#endif
    {"fma_fp32", always, flops_of(4, 1), fma_portable},
};

}  // namespace

std::vector<PeakKernel> peak_kernels() {
    std::vector<PeakKernel> chosen;
    for (const PeakKernel& kernel : all_kernels) {
        const bool wider_known =
            std::ranges::any_of(chosen, [&](const PeakKernel& c) { return std::strcmp(c.name, kernel.name) == 0; });
        if (!wider_known && kernel.runs_here()) chosen.push_back(kernel);
    }
    return chosen;
}

}  // namespace flashtile::cli::bench
