// peak_kernels.h: the fastest multiply-add loops that this CPU has, to measure the ceilings that speeds are shares of.
#pragma once

#include <cstdint>
#include <vector>

namespace flashtile::cli::bench {

struct PeakKernel {
    const char* name;  // "fma_fp32" or "dpbf16"
    bool (*runs_here)();
    double flops_per_iteration;
    float (*run)(std::int64_t iterations);  // returns something made of every product, so that none is removed
};

// For each name the widest kernel that runs here.
std::vector<PeakKernel> peak_kernels();

}  // namespace flashtile::cli::bench
