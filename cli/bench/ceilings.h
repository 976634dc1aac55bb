// ceilings.h: the measured limits of this machine: multiply-add peaks, memcpy bandwidth, a good GEMM.
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
    // Measures for a few ms what for_point() is at this moment, in GFLOP/s, since others may be using this machine. If
    // the result is above all results so far, it becomes the ceiling.
    double look(const Point& point);

private:
    bool by_dpbf16(const Point& point) const;
};

Ceilings measure_ceilings(const std::set<int>& threads);

}  // namespace flashtile::cli::bench
