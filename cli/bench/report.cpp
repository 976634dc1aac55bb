// report.cpp: see report.h.
#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace flashtile::cli::bench {
namespace {

bool same_group(const Point& a, const Point& b) {
    return a.pass == b.pass && a.dtype == b.dtype && a.head_dim == b.head_dim && a.causal == b.causal &&
           a.threads == b.threads;
}

void print_group_heading(const Point& point) {
    fmt::print("\n{} {}, head dimension {}, {}, {} thread{}\n", name_of(point.pass), name_of(point.dtype),
               point.head_dim, point.causal ? "causal" : "no mask", point.threads, point.threads == 1 ? "" : "s");
    fmt::print("{:>7} {:>5} {:>8}  {:<15} {:>10} {:>9} {:>8} {:>12}\n", "seqlen", "batch", "heads", "method", "ms",
               "GFLOP/s", "ceiling", "flashtile is");
}

std::string heads_of(const Point& point) {
    return point.heads == point.kv_heads ? fmt::format("{}", point.heads)
                                         : fmt::format("{}/{}", point.heads, point.kv_heads);
}

nlohmann::json by_threads(const std::map<int, double>& values) {
    nlohmann::json result = nlohmann::json::object();
    for (const auto& [threads, value] : values) result[std::to_string(threads)] = value;
    return result;
}

nlohmann::json or_null(const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
}

// The fields of the point, which both kinds of row have.
nlohmann::json point_json(const Point& p) {
    return {{"pass", name_of(p.pass)}, {"dtype", name_of(p.dtype)}, {"head_dim", p.head_dim},
            {"causal", p.causal},      {"seqlen", p.seqlen},        {"batch", p.batch},
            {"heads", p.heads},        {"kv_heads", p.kv_heads},    {"threads", p.threads}};
}

std::string mib_text(const std::string& method, const std::optional<double>& mib) {
    return mib ? fmt::format("{:.1f}", *mib) : method == "standard" ? "does not fit" : "failed";
}

}  // namespace

void print_ceilings(const Ceilings& ceilings) {
    fmt::print("measured ceilings of this machine\n{:>8} {:>16} {:>16} {:>21} {:>11}\n", "threads", "FMA fp32 GFLOP/s",
               "dpbf16 GFLOP/s", "OpenBLAS sgemm GFLOP/s", "copy GB/s");
    for (const auto& [threads, fma] : ceilings.fma_fp32) {
        const auto dot = ceilings.dpbf16.find(threads);
        fmt::print("{:>8} {:>16.0f} {:>16} {:>22.0f} {:>11.1f}\n", threads, fma,
                   dot == ceilings.dpbf16.end() ? "-" : fmt::format("{:.0f}", dot->second),
                   ceilings.openblas_sgemm.at(threads), ceilings.copy.at(threads));
    }
}

void print_measurement(const Point& point, const Point* previous, const Measurement& measurement) {
    if (!previous || !same_group(*previous, point)) print_group_heading(point);
    const auto ours = std::ranges::find(measurement.rows, "flashtile", &Row::method);
    for (const Row& row : measurement.rows) {
        const bool compared = ours != measurement.rows.end() && row.method != "flashtile";
        fmt::print("{:>7} {:>5} {:>8}  {:<15} {:>10.3f} {:>9.1f} {:>7.1f}% {:>12}\n", point.seqlen, point.batch,
                   heads_of(point), row.method, row.ms, row.rate, 100.0 * row.ceiling_share,
                   compared ? fmt::format("{:.2f}x", row.ms / ours->ms) : "");
    }
    for (const auto& line : measurement.left_out) fmt::print("{:>7} left out: {}\n", point.seqlen, line);
    for (const auto& line : measurement.wrong) fmt::print("{:>7} WRONG RESULT, no speed: {}\n", point.seqlen, line);
}

void print_if_busy(double share_of_ceiling) {
    if (share_of_ceiling < 0.9)
        fmt::print("        the machine is busy: its ceiling was {:.0f}% of its best, and shares are of that\n",
                   100.0 * share_of_ceiling);
}

void print_memory(const std::vector<MemoryRow>& rows) {
    fmt::print("\npeak memory beyond inputs and outputs, MiB\n{:>9} {:>5} {:>9} {:>8} {:>7}", "pass", "dtype",
               "head_dim", "threads", "seqlen");
    for (const auto& [method, mib] : rows.front().mib) fmt::print(" {:>13}", method);
    for (const MemoryRow& row : rows) {
        fmt::print("\n{:>9} {:>5} {:>9} {:>8} {:>7}", name_of(row.point.pass), name_of(row.point.dtype),
                   row.point.head_dim, row.point.threads, row.point.seqlen);
        for (const auto& [method, mib] : row.mib) fmt::print(" {:>13}", mib_text(method, mib));
    }
    fmt::print("\n");
}

nlohmann::json to_json(const Ceilings& ceilings) {
    return {{"fma_fp32_gflops", by_threads(ceilings.fma_fp32)},
            {"dpbf16_gflops", by_threads(ceilings.dpbf16)},
            {"openblas_sgemm_gflops", by_threads(ceilings.openblas_sgemm)},
            {"copy_gbytes_per_s", by_threads(ceilings.copy)}};
}

nlohmann::json to_json(const Row& row) {
    nlohmann::json json = point_json(row.point);
    json.update({{"method", row.method},
                 {"isa", row.isa},
                 {"ms", row.ms},
                 {"gflops", row.rate},
                 {"ceiling_share", row.ceiling_share}});
    return json;
}

nlohmann::json to_json(const MemoryRow& row) {
    nlohmann::json json = point_json(row.point);
    for (const auto& [method, mib] : row.mib) json[method + "_mib"] = or_null(mib);
    return json;
}

}  // namespace flashtile::cli::bench
