// paper.cpp: see paper.h. What is timed: the FlashAttention-2 paper's grid (Figures 4 to 7), lengths of one sequence
// and the memory that they take (Figure 3 of the FlashAttention paper and its tables), blocks and block sparsity (its
// Figure 2).
#include "bench/paper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "attention_names.h"
#include "available_memory.h"
#include "bench/contestants.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/plot.h"
#include "bench/python.h"
#include "bench/report.h"
#include "bench/result_file.h"
#include "block_pattern.h"
#include "commands.h"
#include "cpu_model.h"
#include "schedule.h"
#include "status_line.h"
#include "traffic/rows.h"

namespace flashtile::cli::bench {
namespace {

using nlohmann::json;

constexpr const char* page_tool = "plot_paper.py";
// The paper's is 2048: a quarter of the heads is enough for few threads, and leaves time for greater lengths.
constexpr std::int64_t small_hidden = 512;
constexpr double drawing_seconds = 15.0;
// Of the time, for the parts that come before the grid.
constexpr double memory_share = 0.1;
constexpr double blocks_share = 0.15;
constexpr double sparsity_share = 0.1;
// Calls: a first one, whose result is compared, one sample, and the reference or the forward pass that backward needs.
// Overhead: two looks at the ceiling, and pauses until the threads before it sleep.
constexpr LeastMeasurement least_measurement{.calls = 3.0, .overhead_seconds = 0.15};
// Fast memory that blocks are judged by: what src/baselines' rule for them takes, in bytes.
constexpr std::uint64_t fast_memory = 256 * 1024;

class Clock {
public:
    explicit Clock(double seconds) : seconds_(seconds) {}
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    double left() const { return seconds_ - elapsed(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    double seconds_;
};

void refuse(bool given, const char* option) {
    if (given) throw std::invalid_argument(fmt::format("{} is given, and paper has no use for it", option));
}

void check(const Options& options) {
    if (options.work.size() != 1)
        throw std::invalid_argument("work is paper beside others, allowed is paper alone or others");
    refuse(options.kv_heads != 0, "--kv-heads");
    refuse(options.batch != 0, "--batch");
    refuse(!options.json.empty(), "--json");
    refuse(!options.plot.empty(), "--plot");
    if (options.dtypes.size() != 1)
        throw std::invalid_argument("--dtype has more than one type, allowed for paper is one");
    if (options.threads.size() > 1)
        throw std::invalid_argument("--threads has more than one number, allowed for paper is one");
    if (!isa_available(parse_isa(options.isa)))
        throw std::invalid_argument(fmt::format("--isa is {}, which this CPU or this build cannot run", options.isa));
}

// What is measured, in the order in which it is: a part's name in results.json, and a point.
struct Part {
    const char* name;
    Point point;
};

// Whether 16-bit inputs bring more than their half of the bytes.
bool has_16_bit_arithmetic(const Options& options) {
    const std::string isa =
        options.isa == "auto" ? flashtile_isa_name(flashtile_isa_chosen(FLASHTILE_BF16)) : options.isa;
    return isa == "amx" || isa == "avx512_bf16" || isa == "neon_bf16";
}

// Figures 4 to 7: `both` is made of the two passes.
void add_grid(std::vector<Part>& parts, const Options& options) {
    Options grid_options = options;
    grid_options.work = {"forward", "backward"};
    grid_options.causal = "both";
    if (options.seqlens.empty()) grid_options.seqlens = {512, 1024, 2048, 4096, 8192, 16384};
    if (options.dtypes.front() != "bf16" && has_16_bit_arithmetic(options)) grid_options.dtypes.emplace_back("bf16");
    for (Point point : grid(grid_options)) {
        if (options.heads == 0 && point.threads <= 4)
            point.heads = point.kv_heads = std::max<std::int64_t>(1, small_hidden / point.head_dim);
        parts.push_back({"grid", point});
    }
}

// One sequence with so many heads that every thread has some.
Point one_sequence(const Options& options, std::int64_t seqlen) {
    Point point{.pass = Pass::both, .dtype = parse_dtype(options.dtypes.front())};
    point.threads = options.threads.empty() ? flashtile::get_threads() : options.threads.front();
    point.heads = point.kv_heads = options.heads ? options.heads : std::max(4, point.threads);
    point.seqlen = seqlen;
    return point;
}

std::vector<std::int64_t> lengths(const Options& options) {
    if (!options.seqlens.empty()) return options.seqlens;
    return {128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

// The cheapest first, so that what the minutes do not reach is the greatest lengths of every figure.
std::vector<Part> timed_parts(const Options& options) {
    std::vector<Part> parts;
    add_grid(parts, options);
    for (const std::int64_t n : lengths(options)) parts.push_back({"lengths", one_sequence(options, n)});
    std::ranges::stable_sort(parts, {}, [](const Part& part) { return flops(part.point); });
    // A layer of GPT-2 medium, as in Figure 2's table, of one sequence. It is a table by itself, so it comes first.
    Point gpt2 = one_sequence(options, std::min<std::int64_t>(1024, std::ranges::max(lengths(options))));
    gpt2.heads = gpt2.kv_heads = options.heads ? options.heads : 16;
    parts.insert(parts.begin(), {"gpt2", gpt2});
    return parts;
}

bool installed(const std::string& peer) {
    return succeeds({python_interpreter(), "-c",
                     fmt::format("import importlib.util, sys; sys.exit(importlib.util.find_spec('{}') is None)", peer)},
                    true);
}

Work work_of(const Point& point) {
    return {flops(point), fmt::format("{} {} d={}{}", name_of(point.pass), name_of(point.dtype), point.head_dim,
                                      point.causal ? " causal" : "")};
}

class Paper {
public:
    Paper(const Options& options, double seconds) : options_(options), clock_(seconds) {
        if (options_.against.empty()) choose_peers();
        if (options_.dtypes.front() == "bf16")
            leave_out("Figure 7: it is of bf16, as Figures 4 to 6 are here");
        else if (!has_16_bit_arithmetic(options_))
            leave_out("Figure 7: this CPU has no instructions for products of bf16, or --isa is without them");
    }

    // Before anything starts threads: see memory.h.
    void measure_memory_of_lengths() {
        const double most = memory_share * clock_.left();
        double before = 0.0;
        for (const std::int64_t n : lengths(options_)) {
            const double start = clock_.elapsed();
            // Time grows with the square of the length.
            if (start + 4.0 * (start - before) > most) {
                leave_out(fmt::format("memory of a sequence of {}: the minutes do not reach", n));
                continue;
            }
            before = start;
            for (const Pass pass : {Pass::forward, Pass::backward}) {
                Point point = one_sequence(options_, n);
                point.pass = pass;
                point.heads = point.kv_heads = 1;
                status_.say("memory, " + describe(point));
                const MemoryRow row = measure_memory(point, parse_isa(options_.isa), others(options_));
                status_.clear();
                result_["memory"].push_back(to_json(row));
            }
        }
        for (const std::string& peer : peer_names())
            if (wants(options_, peer)) leave_out(fmt::format("memory of {}: it runs in a process of its own", peer));
    }

    void start_methods(const std::vector<Part>& parts) {
        std::vector<Point> points;
        points.reserve(parts.size());
        for (const Part& part : parts) points.push_back(part.point);
        contestants_ = contestants(options_, points);
        status_.say("measuring the machine's ceilings");
        ceilings_ = measure_ceilings({1, points.front().threads});
        status_.clear();
        print_ceilings(ceilings_);
        if (!openblas_pin().empty())
            fmt::print("note: {} is set; unset it to see the standard baseline at its best\n", openblas_pin());
    }

    // Every pair of Br and Bc, of the algorithms whose blocks can be forced, and flashtile with its plan's beside them.
    void measure_blocks() {
        Point point = one_sequence(options_, std::min<std::int64_t>(1024, std::ranges::max(lengths(options_))));
        point.pass = Pass::forward;
        if (options_.heads == 0) point.heads = point.kv_heads = 8;
        std::vector<std::unique_ptr<Method>> methods;
        methods.push_back(make_standard());
        methods.push_back(make_flashtile(parse_isa(options_.isa)));
        std::vector<json> rows;
        for (const char* algorithm : {"flash1", "flash2"})
            for (std::int64_t Br = 32; Br <= std::min<std::int64_t>(512, point.seqlen); Br *= 2)
                for (std::int64_t Bc = 32; Bc <= std::min<std::int64_t>(512, point.seqlen); Bc *= 2) {
                    methods.push_back(make_with_blocks(algorithm, {Br, Bc}));
                    rows.push_back({{"algorithm", algorithm}, {"Br", Br}, {"Bc", Bc}});
                }
        status_.say(fmt::format("{} pairs of Br and Bc, {}", rows.size(), describe(point)));
        const Measurement measurement = measured(point, methods, blocks_share * clock_.left());
        for (json& row : rows) {
            const std::string name = fmt::format("{} {}x{}", row["algorithm"].get<std::string>(),
                                                 row["Br"].get<std::int64_t>(), row["Bc"].get<std::int64_t>());
            const auto found = std::ranges::find(measurement.rows, name, &Row::method);
            if (found == measurement.rows.end()) continue;
            row["ms"] = found->ms;
            const traffic::Row counted =
                traffic::rows_of(traffic_options(point, {row["algorithm"]}, "forward", {row["Br"], row["Bc"]})).front();
            row["counted_bytes"] = counted.bytes;
            row["blocks_bytes"] = counted.counted.fast * counted.element_bytes();
            result_["blocks"].push_back(row);
        }
        result_["blocks_point"] = describe(point);
        const auto ours = std::ranges::find(measurement.rows, "flashtile", &Row::method);
        if (ours != measurement.rows.end()) result_["own_blocks"] = own_blocks(point, ours->ms);
        fmt::print("blocks: {} pairs of Br and Bc\n", result_["blocks"].size());
    }

    // Forward and backward where a share of the blocks of scores is seen: Algorithm 5 of the FlashAttention paper, and
    // flashtile with lists of blocks, or, where all are seen, without.
    void measure_sparsity() {
        Point point = one_sequence(options_, std::min<std::int64_t>(4096, std::ranges::max(lengths(options_))));
        const double seconds = sparsity_share * clock_.left() / static_cast<double>(std::size(BlockPattern::shares));
        for (const double share : BlockPattern::shares) {
            const BlockPattern seen(point.seqlen, share);
            std::vector<std::unique_ptr<Method>> methods;
            methods.push_back(make_block_sparse(seen));
            methods.push_back(make_flashtile(parse_isa(options_.isa), share < 1.0 ? &seen : nullptr));
            status_.say(fmt::format("{:g}% of the blocks, {}", 100.0 * share, describe(point)));
            std::string times;
            for (const Row& row : measured(point, methods, seconds).rows) {
                result_["sparsity"].push_back(
                    {{"method", row.method}, {"share", share}, {"pass", name_of(point.pass)}, {"ms", row.ms}});
                times += fmt::format("{}{} {:.3g}", times.empty() ? "" : ", ", row.method, row.ms);
            }
            fmt::print("{:g}% of the blocks: {} ms\n", 100.0 * share, times);
        }
        result_["sparsity_point"] = describe(point);
    }

    void measure_parts(const std::vector<Part>& parts) {
        std::vector<Work> works;
        works.reserve(parts.size());
        for (const Part& part : parts) works.push_back(work_of(part.point));
        Schedule schedule(works, least_measurement);
        for (std::size_t n = 0; n < parts.size(); ++n) {
            const Point& point = parts[n].point;
            const auto seconds = schedule.share(n, clock_.left());
            if (!seconds) {
                not_reached_[fmt::format("{}: {}", parts[n].name, works[n].kind)].push_back(point.seqlen);
                continue;
            }
            status_.say(fmt::format("[{}/{}] {}", n + 1, parts.size(), describe(point)));
            const Measurement measurement = measured(point, contestants_.methods, *seconds);
            double all = 0.0;
            std::string speeds;
            for (const Row& row : measurement.rows) {
                result_[parts[n].name].push_back(to_json(row));
                all += 1e-3 * row.ms;
                speeds += fmt::format("{}{} {:.0f}", speeds.empty() ? "" : ", ", row.method, row.rate);
            }
            schedule.measured(n, all, measurement.rows.size());
            fmt::print("{}: {} GFLOP/s\n", describe(point), speeds);
            std::fflush(stdout);
            if (std::string(parts[n].name) == "gpt2") count_traffic(point);
        }
    }

    int write() {
        result_["ceilings"] = to_json(ceilings_);
        result_["machine"] = machine_json(contestants_.versions);
        result_["minutes"] = options_.minutes;
        result_["repeats"] = options_.repeats;
        for (const auto& [what, seqlens] : not_reached_)
            leave_out(fmt::format("{}, lengths {}: the minutes do not reach", what, fmt::join(seqlens, ", ")));
        for (const std::string& line : left_out_) {
            result_["left_out"].push_back(line);
            fmt::print("left out: {}\n", line);
        }
        const std::string file = options_.folder + "/results.json";
        write_json(file, result_);
        fmt::print("results: {}\n", file);
        if (!succeeds({python_interpreter(), tool_path(page_tool), options_.folder}, false))
            throw std::runtime_error(fmt::format("the figures of {} could not be drawn", file));
        fmt::print("page: {}/index.html\n", options_.folder);
        return wrong_ ? exit_wrong_result : exit_ok;
    }

private:
    void leave_out(const std::string& line) {
        if (seen_.insert(line).second) left_out_.push_back(line);
    }

    void choose_peers() {
        options_.against = other_method_names();
        for (const std::string& peer : peer_names())
            if (installed(peer))
                options_.against.push_back(peer);
            else
                leave_out(fmt::format("{}: {} does not have it", peer, python_interpreter()));
    }

    Measurement measured(const Point& point, const std::vector<std::unique_ptr<Method>>& methods, double seconds) {
        Measurement measurement = measure(
            point, methods, [&] { return ceilings_.look(point); }, options_.repeats, seconds);
        status_.clear();
        for (const std::string& line : measurement.left_out)
            leave_out(fmt::format("{} {}: {}", name_of(point.pass), name_of(point.dtype), line));
        for (const std::string& line : measurement.wrong) {
            wrong_ = true;
            leave_out(fmt::format("{}: WRONG RESULT, no speed: {}", describe(point), line));
        }
        return measurement;
    }

    static traffic::Options traffic_options(const Point& point, const std::vector<std::string>& algorithms,
                                            const std::string& pass, const std::vector<std::int64_t>& tile) {
        traffic::Options wanted;
        wanted.passes = {pass};
        wanted.algorithms = algorithms;
        wanted.seqlens = {point.seqlen};
        wanted.head_dims = {point.head_dim};
        wanted.memories = {fast_memory};
        wanted.dtype = "fp32";  // in which src/baselines compute
        wanted.heads = point.batch * point.heads;
        wanted.tile = tile;
        return wanted;
    }

    void count_traffic(const Point& point) {
        for (const auto& row : traffic::rows_of(traffic_options(point, {"standard", "flash1", "flash2"}, "both", {})))
            result_["traffic"].push_back(traffic::to_json(row));
    }

    json own_blocks(const Point& point, double ms) const {
        alignas(64) static std::byte memory[64];  // an address: a plan reads no tensor
        const flashtile::tensor t =
            flashtile::view(memory, point.dtype, {point.batch, point.seqlen, point.heads, point.head_dim});
        const flashtile::options wanted = {.threads = point.threads, .isa = parse_isa(options_.isa)};
        const json plan = json::parse(flashtile::plan_report(wanted, t, t, t));
        const json& kernel = plan.at("forward").at("kernels").at(0);
        return {{"Br", kernel.at("Br")}, {"Bc", kernel.at("Bc")}, {"ms", ms}};
    }

    Options options_;
    Clock clock_;
    StatusLine status_;
    Contestants contestants_;
    Ceilings ceilings_;
    json result_ = {{"grid", json::array()},     {"lengths", json::array()}, {"gpt2", json::array()},
                    {"memory", json::array()},   {"blocks", json::array()},  {"traffic", json::array()},
                    {"sparsity", json::array()}, {"left_out", json::array()}};
    std::vector<std::string> left_out_;
    std::set<std::string> seen_;
    std::map<std::string, std::vector<std::int64_t>> not_reached_;
    bool wrong_ = false;
};

}  // namespace

int run_paper(const Options& given) {
    check(given);
    Options options = given;
    if (options.minutes <= 0.0) options.minutes = 5.0;
    require_plotter(page_tool);
    std::filesystem::create_directories(options.folder);
    require_writable("--folder", options.folder + "/results.json");
    fmt::print("flashtile {} on {}\n", flashtile::version(), cpu_model());
    const double seconds = 60.0 * options.minutes;
    Paper paper(options, seconds - std::min(drawing_seconds, 0.3 * seconds));
    const std::vector<Part> parts = timed_parts(options);
    paper.measure_memory_of_lengths();
    paper.start_methods(parts);
    paper.measure_blocks();
    paper.measure_sparsity();
    paper.measure_parts(parts);
    return paper.write();
}

}  // namespace flashtile::cli::bench
