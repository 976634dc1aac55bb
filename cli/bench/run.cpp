// run.cpp: see run.h.
#include "bench/run.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "attention_names.h"
#include "bench/contestants.h"
#include "bench/machine.h"
#include "bench/plot.h"
#include "bench/report.h"
#include "bench/result_file.h"
#include "commands.h"
#include "cpu_model.h"
#include "status_line.h"

namespace flashtile::cli::bench {
namespace {

using nlohmann::json;

constexpr const char* plotter = "plot_bench.py";

std::vector<MemoryRow> memory_rows(const Options& options, StatusLine& status) {
    Options one_sequence = options;
    one_sequence.work = {"forward", "backward"};
    one_sequence.seqlens = memory_seqlens(options);
    one_sequence.batch = options.batch ? options.batch : 1;
    one_sequence.heads = options.heads ? options.heads : 1;
    if (options.causal == "both") one_sequence.causal = "0";
    std::vector<MemoryRow> rows;
    for (const Point& point : grid(one_sequence)) {
        status.say("memory, " + describe(point));
        rows.push_back(measure_memory(point, parse_isa(options.isa), others(options)));
    }
    status.clear();
    return rows;
}

std::set<int> thread_counts(const std::vector<Point>& points) {
    std::set<int> counts{1};
    for (const Point& point : points) counts.insert(point.threads);
    return counts;
}

// A point's share of the time that is left, in proportion to the FLOPs that are left; 0 where there is no limit.
class Budget {
public:
    Budget(double minutes, const std::vector<Point>& points) : seconds_(60.0 * minutes) {
        for (const Point& point : points) flops_left_ += flops(point);
    }
    bool over() const { return seconds_ > 0.0 && left() <= 0.0; }
    double take(const Point& point) {
        const double share = flops(point) / flops_left_;
        flops_left_ -= flops(point);
        return seconds_ > 0.0 ? left() * share : 0.0;
    }

private:
    double left() const {
        return seconds_ - std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    double seconds_;
    double flops_left_ = 0.0;
};

}  // namespace

int run(const Options& options) {
    const bool timed = options.work.empty() || !passes(options).empty();
    const auto points = timed ? grid(options) : std::vector<Point>();
    if (!options.json.empty()) require_writable("--json", options.json);
    if (!options.plot.empty()) {
        if (!timed) throw std::invalid_argument("--plot draws speeds, and only memory was asked for");
        require_writable("--plot", options.plot);
        require_plotter(plotter);
    }
    const auto isa = parse_isa(options.isa);
    if (!isa_available(isa))
        throw std::invalid_argument(fmt::format("--isa is {}, which this CPU or this build cannot run", options.isa));

    StatusLine status;
    Contestants taking_part;
    if (timed) taking_part = contestants(options, points);
    json result = {{"machine", json::object()}, {"ceilings", json::object()}, {"rows", json::array()}};
    int exit_code = exit_ok;

    fmt::print("flashtile {} on {}\n", flashtile::version(), cpu_model());
    if (wants_memory(options)) {  // first: a child made by fork() would lack threads that this process had started
        const auto rows = memory_rows(options, status);
        print_memory(rows);
        for (const MemoryRow& row : rows) result["memory"].push_back(to_json(row));
    }
    if (timed) {
        status.say("measuring the machine's ceilings");
        Budget budget(options.minutes, points);
        Ceilings ceilings = measure_ceilings(thread_counts(points));
        status.clear();
        print_ceilings(ceilings);
        if (!openblas_pin().empty())
            fmt::print("note: {} is set; unset it to see the standard baseline at its best\n", openblas_pin());

        const Point* previous = nullptr;
        for (const Point& point : points) {
            if (budget.over()) {
                fmt::print("left out, the --minutes are over: {}\n", describe(point));
                continue;
            }
            status.say(fmt::format("[{}/{}] {}", &point - points.data() + 1, points.size(), describe(point)));
            const Measurement measurement = measure(
                point, taking_part.methods, [&] { return ceilings.look(point); }, options.repeats, budget.take(point));
            status.clear();
            print_measurement(point, previous, measurement);
            print_if_busy(measurement.ceiling / ceilings.for_point(point));
            std::fflush(stdout);
            for (const Row& row : measurement.rows) result["rows"].push_back(to_json(row));
            if (!measurement.wrong.empty()) exit_code = exit_wrong_result;
            previous = &point;
        }
        result["ceilings"] = to_json(ceilings);
    }
    result["machine"] = machine_json(taking_part.versions);

    if (!options.json.empty()) write_json(options.json, result);
    if (!options.plot.empty() && !result["rows"].empty()) draw(plotter, options.plot, result);
    if (!options.json.empty()) fmt::print("\nresults: {}\n", options.json);
    if (!options.plot.empty()) fmt::print("plot: {}\n", options.plot);
    return exit_code;
}

}  // namespace flashtile::cli::bench
