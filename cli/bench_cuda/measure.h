// measure.h: every method on the same data, results compared, then timed in turns.
#pragma once

#include <string>
#include <vector>

#include "bench_cuda/methods.h"
#include "bench_cuda/problem.h"

namespace flashtile::cli::bench_cuda {

struct Row {
    std::string method;
    std::string tile;           // the fastest of those that it may choose from; "" where there is no choice
    double milliseconds = 0.0;  // median; 0: not timed
    double teraflops = 0.0;     // per second, by the paper's count
    double error = 0.0;         // the largest difference from the first method's, relative to its largest value
    std::size_t extra_bytes = 0;
    std::string out_because = {};  // not "": why there is no time
    bool wrong = false;
};

// Compiles all methods' kernels side by side, so that measuring waits for none.
void compile_all(const std::vector<Method>& methods);
// Likewise the library's own, which are compiled when they are first called.
void call_library(const std::vector<Shape>& shapes, Element element);

// Takes about so many seconds, and a few samples of each method at least. Results are compared with the first method's.
std::vector<Row> measure(Problem& problem, const Shape& shape, const std::vector<Method>& methods, Element element,
                         Pass pass, double seconds);

}  // namespace flashtile::cli::bench_cuda
