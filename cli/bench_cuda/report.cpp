// report.cpp: see report.h.
#include "bench_cuda/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

namespace flashtile::cli::bench_cuda {
namespace {

// Milliseconds; none where the method was not timed.
std::optional<double> time_of(const MeasuredPoint& point, const std::string& method) {
    for (const Row& row : point.rows)
        if (row.method == method && row.milliseconds > 0.0) return row.milliseconds;
    return std::nullopt;
}

double mib(std::size_t bytes) {
    return static_cast<double>(bytes) / (1 << 20);
}

void print_changes(const std::vector<MeasuredPoint>& points) {
    struct Change {
        const char* name;
        bool WorkPartition::*on;
    };
    constexpr Change kChanges[] = {{"3.1 O / l once; LSE instead of m, l", &WorkPartition::deferred},
                                   {"3.2 thread blocks over the sequence", &WorkPartition::over_sequence},
                                   {"3.3 warps split Q, not K", &WorkPartition::split_queries}};
    std::printf("\nWhat each change brought to %s, times as fast\n  %-40s %12s %18s\n", name_of(points.front().pass),
                "section of FlashAttention-2's paper", "alone", "with the others");
    for (const Change& change : kChanges) {
        WorkPartition alone{}, without = kAllWays;
        alone.*change.on = true;
        without.*change.on = false;
        std::printf("  %-40s %12.2f %18.2f\n", change.name, speedup(points, name_of(alone), name_of(WorkPartition{})),
                    speedup(points, name_of(kAllWays), name_of(without)));
    }
    std::printf("  %-40s %12.2f\n", "all three", speedup(points, name_of(kAllWays), name_of(WorkPartition{})));
    std::printf("  %-40s %12.2f\n", "all three, at our general kernels' tile",
                speedup(points, kAtGeneralTile, name_of(WorkPartition{})));
    std::printf("  %-40s %12.2f  (honest: at least 0.90)\n", "that, beside general, exact max",
                speedup(points, kAtGeneralTile, kGeneralExact));
}

}  // namespace

double speedup(const std::vector<MeasuredPoint>& points, const std::string& fast, const std::string& slow) {
    double sum = 0.0;
    int count = 0;
    for (const MeasuredPoint& point : points) {
        const auto a = time_of(point, fast), b = time_of(point, slow);
        if (a && b) sum += std::log(*b / *a), ++count;
    }
    return count == 0 ? 0.0 : std::exp(sum / count);
}

double least_speedup(const std::vector<MeasuredPoint>& points, const std::string& fast, const std::string& slow) {
    double least = 0.0;
    for (const MeasuredPoint& point : points)
        if (const double here = speedup({point}, fast, slow); here > 0.0)
            least = least == 0.0 ? here : std::min(least, here);
    return least;
}

double least_memory_ratio(const std::vector<MeasuredPoint>& points, const std::string& lean, const std::string& other) {
    double least = 0.0;
    for (const MeasuredPoint& point : points) {
        const auto few = std::ranges::find(point.rows, lean, &Row::method),
                   many = std::ranges::find(point.rows, other, &Row::method);
        if (few == point.rows.end() || many == point.rows.end() || few->extra_bytes == 0 || many->extra_bytes == 0)
            continue;
        const double here = static_cast<double>(many->extra_bytes) / static_cast<double>(few->extra_bytes);
        least = least == 0.0 ? here : std::min(least, here);
    }
    return least;
}

double mean_teraflops(const std::vector<MeasuredPoint>& points, const std::string& method) {
    double sum = 0.0;
    int count = 0;
    for (const MeasuredPoint& point : points)
        if (const auto time = time_of(point, method))
            sum += std::log(flops(point.shape, point.pass) / (*time * 1e9)), ++count;
    return count == 0 ? 0.0 : std::exp(sum / count);
}

void print_point(const MeasuredPoint& point) {
    const Shape& s = point.shape;
    std::printf("\n%s d=%lld %s n=%lld batch=%lld heads=%lld\n", name_of(point.pass),
                static_cast<long long>(s.head_dim), s.causal ? "causal" : "full", static_cast<long long>(s.seqlen_q),
                static_cast<long long>(s.batch), static_cast<long long>(s.heads));
    const auto ours = time_of(point, kGeneral);
    for (const Row& row : point.rows) {
        if (!row.out_because.empty())
            std::printf("  %-24s %s: %s\n", row.method.c_str(), row.wrong ? "WRONG" : "left out",
                        row.out_because.c_str());
        else
            std::printf("  %-24s %9.3f ms %7.1f TFLOP/s %8.1f MiB  general is %5.2fx  %s\n", row.method.c_str(),
                        row.milliseconds, row.teraflops, mib(row.extra_bytes), ours ? row.milliseconds / *ours : 0.0,
                        row.tile.c_str());
    }
}

void print_summary(const std::vector<MeasuredPoint>& points) {
    if (points.empty()) return;
    std::printf("\n%s: geometric means over %zu points\n  %-24s %9s %18s %20s\n", name_of(points.front().pass),
                points.size(), "method", "TFLOP/s", "general is, times", "flashtile is, times");
    for (const Row& row : points.front().rows)
        std::printf("  %-24s %9.1f %18.2f %20.2f\n", row.method.c_str(), mean_teraflops(points, row.method),
                    speedup(points, kGeneral, row.method), speedup(points, kLibrary, row.method));
    print_changes(points);
    std::vector<MeasuredPoint> long_ones;
    for (const MeasuredPoint& point : points)
        if (point.shape.seqlen_k >= 8192) long_ones.push_back(point);
    std::printf(
        "flashtile beside standard: at least %.2f times as fast at every point; from n=8192 on standard takes at "
        "least %.1f times the memory\n",
        least_speedup(points, kLibrary, kStandard), least_memory_ratio(long_ones, kLibrary, kStandard));
}

nlohmann::json to_json(const MeasuredPoint& point) {
    const Shape& s = point.shape;
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : point.rows) {
        nlohmann::json one = {
            {"method", row.method}, {"tile", row.tile}, {"error", row.error}, {"extra_bytes", row.extra_bytes}};
        if (row.out_because.empty())
            one.update({{"ms", row.milliseconds}, {"tflops", row.teraflops}});
        else
            one["left_out"] = row.out_because;
        rows.push_back(one);
    }
    return {{"pass", name_of(point.pass)},
            {"head_dim", s.head_dim},
            {"causal", s.causal},
            {"seqlen", s.seqlen_q},
            {"batch", s.batch},
            {"heads", s.heads},
            {"methods", rows}};
}

}  // namespace flashtile::cli::bench_cuda
