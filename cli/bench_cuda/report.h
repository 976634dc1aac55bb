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

// How many times as fast as `slow` `fast` is, and a method's speed: geometric means over the points that have them,
// which are of one pass; 0 where none has.
double speedup(const std::vector<MeasuredPoint>& points, const std::string& fast, const std::string& slow);
// The least over points; likewise of memory: how many times what `lean` takes `other` takes.
double least_speedup(const std::vector<MeasuredPoint>& points, const std::string& fast, const std::string& slow);
double least_memory_ratio(const std::vector<MeasuredPoint>& points, const std::string& lean, const std::string& other);
double mean_teraflops(const std::vector<MeasuredPoint>& points, const std::string& method);

void print_point(const MeasuredPoint& point);

// Every method's speed, what each change brought, and how near the
// baseline with all three comes to our own kernels.
void print_summary(const std::vector<MeasuredPoint>& points);

nlohmann::json to_json(const MeasuredPoint& point);

}  // namespace flashtile::cli::bench_cuda
