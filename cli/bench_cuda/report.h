// report.h: the tables of `bench baselines`, and its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench_cuda/measure.h"

namespace flashtile::cli::bench_cuda {

struct MeasuredPoint {
    Pass pass;
    Shape shape;
    std::vector<Row> rows;
};

void print_point(const MeasuredPoint& point);

// Geometric means over points, which are of one pass: every method's speed, what each change brought, and how near the
// baseline with all three comes to our own kernels.
void print_summary(const std::vector<MeasuredPoint>& points);

nlohmann::json to_json(const MeasuredPoint& point);

}  // namespace flashtile::cli::bench_cuda
