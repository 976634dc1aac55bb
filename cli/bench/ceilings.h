// ceilings.h: what this machine can do at most, measured: multiply-add peaks, copy bandwidth, a good GEMM.
#pragma once

#include <map>
#include <set>

#include "bench/point.h"

namespace flashtile::cli::bench {

// Keyed by the number of threads, which run at the same time.
struct Ceilings {
    std::map<int, double> fma_fp32;        // GFLOP/s
    std::map<int, double> dpbf16;          // GFLOP/s; empty where the CPU has no such instruction
    std::map<int, double> openblas_sgemm;  // GFLOP/s, 2048 x 2048 x 2048
    std::map<int, double> copy;            // GB/s read and written, far beyond the caches

    // What a point's speed is a share of: the FMA peak, and for bf16 the better of that and dpbf16's.
    double for_point(const Point& point) const;
};

// One short look at the FMA peak: far below the ceiling it tells that others are using this machine.
double fma_gflops_now(int threads);

Ceilings measure_ceilings(const std::set<int>& threads);

}  // namespace flashtile::cli::bench
