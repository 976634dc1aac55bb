// peak_kernels.h: the fastest multiply-add loops that this CPU can run. They give the ceiling for the speeds measured.
#pragma once

#include <cstdint>
#include <vector>

namespace flashtile::cli::bench {

struct PeakKernel {
    const char* name;  // "fma_fp32" or "dpbf16"
    bool (*runs_here)();
    double flops_per_iteration;
    float (*run)(std::int64_t iterations);  // the result depends on every product, so that the compiler removes none
};

// For each name the widest kernel that runs here.
std::vector<PeakKernel> peak_kernels();

}  // namespace flashtile::cli::bench
