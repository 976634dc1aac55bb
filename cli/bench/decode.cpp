// decode.cpp: see decode.h. Speeds are bytes of K and V a second, ceilings what this machine reads, results compared
// with attention in double.
#include "bench/decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attention_names.h"
#include "bench/exact_decode.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/read_ceiling.h"
#include "bench/report.h"
#include "bench/result_file.h"
#include "bench/torch_method.h"
#include "commands.h"
#include "cpu_model.h"
#include "status_line.h"

namespace flashtile::cli::bench {
namespace {

constexpr double mib = 1 << 20;

bool same_group(const Point& a, const Point& b) {
    return a.dtype == b.dtype && a.head_dim == b.head_dim && a.threads == b.threads;
}

void print_heading(const Point& p) {
    fmt::print("\ndecode {}, head dimension {}, {} query head{}, {} key head{}, {} a sequence, {} thread{}\n",
               name_of(p.dtype), p.head_dim, p.heads, p.heads == 1 ? "" : "s", p.kv_heads, p.kv_heads == 1 ? "" : "s",
               p.queries == 1 ? "1 query" : fmt::format("{} queries", p.queries), p.threads, p.threads == 1 ? "" : "s");
    fmt::print("{:>7} {:>5} {:>9} {:>6}  {:<15} {:>11} {:>7} {:>8} {:>8} {:>12}\n", "keys", "batch", "cache MiB",
               "pages", "method", "us", "GB/s", "of read", "error", "flashtile is");
}

void print(const Point& p, const Measurement& measurement) {
    const auto ours = std::ranges::find(measurement.rows, "flashtile", &Row::method);
    const std::string pages = p.page_size == 0 ? "dense" : fmt::format("{}", p.page_size);
    for (const Row& row : measurement.rows) {
        const bool compared = ours != measurement.rows.end() && row.method != "flashtile";
        fmt::print("{:>7} {:>5} {:>9.1f} {:>6}  {:<15} {:>11.1f} {:>7.2f} {:>7.1f}% {:>8.1e} {:>12}\n", p.seqlen,
                   p.batch, cache_bytes(p) / mib, pages, row.method, row.ms * 1e3, row.rate, 100.0 * row.ceiling_share,
                   row.error, compared ? fmt::format("{:.2f}x", row.ms / ours->ms) : "");
    }
    fmt::print("{:>7} this machine reads {:.2f} GB/s from a buffer of that size\n", "", measurement.ceiling);
    for (const auto& line : measurement.left_out) fmt::print("{:>7} left out: {}\n", p.seqlen, line);
    for (const auto& line : measurement.wrong) fmt::print("{:>7} WRONG RESULT, no speed: {}\n", p.seqlen, line);
}

nlohmann::json row_json(const Row& row, double ceiling) {
    const Point& p = row.point;
    return {{"method", row.method},
            {"isa", row.isa},
            {"dtype", name_of(p.dtype)},
            {"head_dim", p.head_dim},
            {"heads", p.heads},
            {"kv_heads", p.kv_heads},
            {"batch", p.batch},
            {"queries", p.queries},
            {"seqlen_k", p.seqlen},
            {"page_size", p.page_size},
            {"threads", p.threads},
            {"cache_bytes", cache_bytes(p)},
            {"us", row.ms * 1e3},
            {"gbytes_per_s", row.rate},
            {"read_gbytes_per_s", ceiling},
            {"read_share", row.ceiling_share},
            {"error", row.error}};
}

void refuse(bool given, const char* option) {
    if (given) throw std::invalid_argument(fmt::format("{} is given, and decode has no use for it", option));
}

}  // namespace

int run_decode(const Options& options) {
    refuse(options.device != "cpu", "--device");
    refuse(!options.plot.empty(), "--plot");
    if (!others(options).empty() || wants(options, "openvino"))
        throw std::invalid_argument(
            fmt::format("--against is {}, allowed with decode is torch", fmt::join(options.against, ",")));
    const std::int64_t last_level_cache = last_level_cache_bytes();
    const std::vector<Point> points = decode_grid(options, last_level_cache);
    for (const Point& p : points)
        if (3.0 * cache_bytes(p) > memory_to_use())
            throw std::invalid_argument(
                fmt::format("--seqlen is {}, whose keys and values take {:.0f} MiB; allowed is a third of {:.0f} MiB",
                            p.seqlen, cache_bytes(p) / mib, memory_to_use() / mib));
    if (!options.json.empty()) require_writable("--json", options.json);
    const auto isa = parse_isa(options.isa);
    if (!isa_available(isa))
        throw std::invalid_argument(fmt::format("--isa is {}, which this CPU or this build cannot run", options.isa));

    StatusLine status;
    std::vector<std::unique_ptr<Method>> methods;
    methods.push_back(make_flashtile(isa));
    std::map<std::string, std::string> versions;
    if (wants(options, "torch")) {
        status.say("starting PyTorch");
        const auto torch = start_torch();
        versions["torch"] = torch->version();
        for (const char* name : {"torch_sdpa", "torch_standard"}) methods.push_back(make_torch(torch, name));
        status.clear();
    }
    fmt::print("flashtile {} on {}, last-level cache {:.0f} MiB\n", flashtile::version(), cpu_model(),
               static_cast<double>(last_level_cache) / mib);
    int exit_code = exit_ok;
    nlohmann::json rows = nlohmann::json::array();
    const Point* previous = nullptr;
    for (const Point& point : points) {
        status.say(fmt::format("[{}/{}] {}", &point - points.data() + 1, points.size(), describe(point)));
        ReadCeiling ceiling(static_cast<std::size_t>(cache_bytes(point)), point.threads);
        const double seconds = 60.0 * options.minutes / static_cast<double>(points.size());
        const Measurement measurement = measure(
            point, methods, [&] { return ceiling.look(); }, options.repeats, seconds, exact_decode);
        status.clear();
        if (previous == nullptr || !same_group(*previous, point)) print_heading(point);
        print(point, measurement);
        std::fflush(stdout);
        for (const Row& row : measurement.rows) rows.push_back(row_json(row, measurement.ceiling));
        if (!measurement.wrong.empty()) exit_code = exit_wrong_result;
        previous = &point;
    }
    if (options.json.empty()) return exit_code;
    write_json(options.json,
               {{"machine", machine_json(versions)}, {"last_level_cache_bytes", last_level_cache}, {"decode", rows}});
    fmt::print("\nresults: {}\n", options.json);
    return exit_code;
}

}  // namespace flashtile::cli::bench
