// run.cpp: see run.h.
#include "traffic/run.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "available_memory.h"
#include "bench/plot.h"
#include "bench/python.h"
#include "bench/result_file.h"
#include "commands.h"

namespace flashtile::cli::traffic {
namespace {

constexpr const char* plotter = "plot_io.py";

bool same_group(const Row& a, const Row& b) {
    return a.pass == b.pass && a.head_dim == b.head_dim && a.memory == b.memory;
}

void print_heading(const Row& row) {
    const std::string blocks = row.causal          ? ", causal"
                               : row.density < 1.0 ? fmt::format(", {} of the blocks", row.density)
                                                   : "";
    fmt::print("\n{}{}, d {}, fast memory of {}: M is {} of {}, {} head{}\n",
               row.pass == "both" ? "forward + backward" : row.pass, blocks, row.head_dim, format_bytes(row.memory),
               row.M(), row.dtype, row.heads, row.heads == 1 ? "" : "s");
    fmt::print("{:>7}  {:<14} {:>10} {:>15} {:>15} {:>8} {:>16} {:>10} {:>9}\n", "N", "algorithm", "Br x Bc", "counted",
               "analytic", "differ", "rounding", "bytes", "blocks/M");
}

// A part of the whole in percent.
std::string percent(double part, const Row& row) {
    return fmt::format("{:+.2f}%", 100.0 * part / row.analytic.elements);
}

// What the CPU backend's plan says beside Br and Bc.
std::string tasks(const Row& row) {
    if (row.pass == "both") return row.plan.isa;
    return fmt::format("{}, tasks of {} {}", row.plan.isa, row.plan.task_rows,
                       row.pass == "forward" ? "queries" : "keys");
}

void print(const Row& row) {
    const bool blocks = row.tile.Br != 0;
    const double off = static_cast<double>(row.counted.elements()) - row.analytic.elements;
    fmt::print(
        "{:>7}  {:<14} {:>10} {:>15} {:>15.0f} {:>8} {:>16} {:>10} {:>9}{}\n", row.seqlen, row.algorithm,
        blocks ? fmt::format("{} x {}", row.tile.Br, row.tile.Bc) : "-", row.counted.elements(), row.analytic.elements,
        percent(off, row),
        blocks ? fmt::format("{} {}", percent(-row.analytic.below, row), percent(row.analytic.above, row)) : "-",
        format_bytes(static_cast<std::uint64_t>(row.bytes)),
        blocks ? fmt::format("{:.2f}", static_cast<double>(row.counted.fast) / static_cast<double>(row.M())) : "-",
        row.of_backend() ? fmt::format("  {}", tasks(row)) : "");
}

void print_lower_bound(const Row& row) {
    if (const auto bound = row.lower_bound())
        fmt::print("{:>7}  {:<14} {:>10} {:>15} {:>15.0f}\n", row.seqlen, "N^2 d^2 / M", "-", "-", *bound);
}

}  // namespace

int run(const Options& options) {
    if (!options.json.empty()) bench::require_writable("--json", options.json);
    if (!options.plot.empty()) {
        if (options.seqlens.size() < 2 && options.memories.size() < 2)
            throw std::invalid_argument("--plot has an axis of --seqlen or of --memory, and each has one value");
        bench::require_writable("--plot", options.plot);
        bench::require_plotter(plotter);
    }
    const std::vector<Row> rows = rows_of(options);
    nlohmann::json result = {{"flashtile", flashtile::version()}, {"rows", nlohmann::json::array()}};
    bool right = true;
    fmt::print("elements that move between slow and fast memory\n");
    for (std::size_t n = 0; n < rows.size(); ++n) {
        if (n == 0 || !same_group(rows[n - 1], rows[n])) print_heading(rows[n]);
        print(rows[n]);
        if (n + 1 == rows.size() || !same_group(rows[n], rows[n + 1]) || rows[n].seqlen != rows[n + 1].seqlen)
            print_lower_bound(rows[n]);
        if (!rows[n].analytic.holds(rows[n].counted)) {
            right = false;
            fmt::print("        WRONG: the count is outside the terms of rounding\n");
        }
        result["rows"].push_back(to_json(rows[n]));
    }
    if (!options.json.empty()) bench::write_json(options.json, result);
    if (!options.plot.empty()) bench::draw(plotter, options.plot, result);
    if (!options.json.empty()) fmt::print("\nresults: {}\n", options.json);
    if (!options.plot.empty()) fmt::print("plot: {}\n", options.plot);
    return right ? exit_ok : exit_wrong_result;
}

int run_measured(const Options& options) {
    if (options.seqlens.size() != 1 || options.head_dims.size() != 1)
        throw std::invalid_argument("--seqlen or --head-dim has more than one number, allowed with --measured is one");
    std::vector<std::string> command = {bench::python_interpreter(),
                                        bench::tool_path("measure_io.py"),
                                        "--flashtile=" + std::filesystem::read_symlink("/proc/self/exe").string(),
                                        fmt::format("--seqlen={}", options.seqlens.front()),
                                        fmt::format("--head-dim={}", options.head_dims.front()),
                                        fmt::format("--heads={}", options.heads)};
    if (options.causal) command.emplace_back("--causal");
    if (!options.json.empty()) command.push_back("--json=" + options.json);
    std::fflush(stdout);
    return bench::exit_code_of(command) == 0 ? exit_ok : exit_usage;
}

}  // namespace flashtile::cli::traffic
