// ceilings.cpp: see ceilings.h.
#include "bench/ceilings.h"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/peak_kernels.h"
#include "bench/together.h"
#include "numbers.h"

namespace flashtile::cli::bench {
namespace {

constexpr int thorough = 7;
constexpr double look_seconds = 0.004;

double peak_gflops(const PeakKernel& kernel, int threads, int repeats, std::int64_t iterations) {
    std::vector<float> kept(static_cast<std::size_t>(threads));
    const double seconds = seconds_together(
        threads, repeats, [&](int thread) { kept[static_cast<std::size_t>(thread)] = kernel.run(iterations); });
    return kernel.flops_per_iteration * static_cast<double>(iterations) * threads / seconds * 1e-9;
}

double sgemm_gflops(int threads) {
    constexpr int n = 2048;
    const Numbers a = random_numbers(flashtile::fp32, n * n, 1);
    const Numbers b = random_numbers(flashtile::fp32, n * n, 2);
    const Numbers c(flashtile::fp32, n * n);
    openblas_set_num_threads(threads);
    const double seconds = seconds_together(1, thorough, [&](int) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0f, static_cast<const float*>(a.data()), n,
                    static_cast<const float*>(b.data()), n, 0.0f, static_cast<float*>(c.data()), n);
    });
    return 2.0 * n * n * n / seconds * 1e-9;
}

double copy_gbytes(int threads) {
    constexpr std::size_t bytes = std::size_t{256} << 20;
    std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 2);
    const std::size_t part = bytes / static_cast<std::size_t>(threads);
    const double seconds = seconds_together(threads, thorough, [&](int thread) {
        std::memcpy(to.data() + static_cast<std::size_t>(thread) * part,
                    from.data() + static_cast<std::size_t>(thread) * part, part);
    });
    return 2.0 * static_cast<double>(part) * threads / seconds * 1e-9;
}

}  // namespace

bool Ceilings::by_dpbf16(const Point& point) const {
    const auto dot = dpbf16.find(point.threads);
    return point.dtype == flashtile::bf16 && dot != dpbf16.end() && dot->second > fma_fp32.at(point.threads);
}

double Ceilings::for_point(const Point& point) const {
    return (by_dpbf16(point) ? dpbf16 : fma_fp32).at(point.threads);
}

double Ceilings::look(const Point& point) {
    // OpenBLAS's threads go on spinning for 2^26 cycles when they are done, and would take half a core from what is
    // measured next.
    if (point.threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const char* name = by_dpbf16(point) ? "dpbf16" : "fma_fp32";
    double& best = (by_dpbf16(point) ? dpbf16 : fma_fp32).at(point.threads);
    for (const PeakKernel& kernel : peak_kernels()) {
        if (std::strcmp(kernel.name, name) != 0) continue;
        const double flops = best / point.threads * 1e9 * look_seconds;
        const auto iterations = static_cast<std::int64_t>(flops / kernel.flops_per_iteration) + 1;
        const double now = peak_gflops(kernel, point.threads, 1, iterations);
        best = std::max(best, now);
        return now;
    }
    throw std::logic_error("no loop measures the ceiling");
}

Ceilings measure_ceilings(const std::set<int>& threads) {
    constexpr std::int64_t iterations = 10'000'000;  // some 25 to 50 ms
    Ceilings ceilings;
    for (const int count : threads) {
        for (const PeakKernel& kernel : peak_kernels()) {
            auto& peak = std::strcmp(kernel.name, "dpbf16") == 0 ? ceilings.dpbf16 : ceilings.fma_fp32;
            peak[count] = peak_gflops(kernel, count, thorough, iterations);
        }
        ceilings.openblas_sgemm[count] = sgemm_gflops(count);
        ceilings.copy[count] = copy_gbytes(count);
    }
    return ceilings;
}

}  // namespace flashtile::cli::bench
