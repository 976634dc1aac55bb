// tune.cpp: `flashtile tune`: measures the tiles that a CUDA kernel can have on the GPU that is here, or the rows that
// a task can have on this CPU, for a problem of the user's, and has the library keep the best: the auto-tuning that the
// FlashAttention-2 paper leaves to future work.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "flags_beside.h"
#include "number_checks.h"
#include "plan.h"
#include "progress.h"
#include "tune/contest.h"
#include "tune/cpu_problem.h"
#include "tune/gpu_problem.h"
#include "tune/oracle_check.h"
#include "tune/tiles.h"

namespace flashtile::cli {
namespace {

using tune::Contestant;
using tune::Pass;

constexpr const char* examples = R"(Examples:
  flashtile tune --head-dim=128 --seqlen=4096 --causal         forward and backward, bf16, 16k tokens in all
  flashtile tune --head-dim=64 --seqlen=1024 --dtype=fp16 --batch=8 --heads=32 --kv-heads=8 --pass=forward
  flashtile tune --device=cpu --head-dim=64 --seqlen=2048      rows of a task on this CPU, fp32
  flashtile tune --list                                        what was kept
  flashtile tune --forget                                      back to the library's own tiles
  FLASHTILE_NO_CHOICES=1 ./program                             does not use it

Every tile's results are checked before it is timed: against those of the library's own tile, and on a small problem
against dense attention in fp64. What is kept serves later calls with the same head dimensions, type and options on such
a GPU whose lengths are 3/4 to 3/2 of the nearest power of two. Results then differ from those before by rounding; on a
CPU they have the same bits, which is checked.)";

// The paper's benchmark has so many tokens in all and this hidden dimension. --batch and --heads replace them.
constexpr std::int64_t kTokens = 16384, kHidden = 2048;
// On a CPU one sequence of a quarter of the heads: enough for few threads, and through in no time.
constexpr std::int64_t kCpuHidden = 512;

struct TuneArguments {
    TuneArguments() {
        problem.shape = {.batch = 0, .heads = 0, .seqlen_q = 4096, .head_dim = 128};
        problem.no_registers = true;
    }
    PlanArguments problem;
    std::string pass = "both";
    std::string device = "0";  // a GPU's ordinal, or cpu
    double seconds = 5.0;
    bool list = false, forget = false, json = false;
};

struct PassReport {
    Pass pass;
    std::string kernel;
    std::vector<Contestant> contestants;
    std::size_t best = 0;
    bool kept = false;
};

bool on_cpu(const PlanArguments& problem) {
    return problem.attention.device == "cpu";
}

std::unique_ptr<tune::MeasuredProblem> make_problem(const PlanArguments& problem, Pass pass) {
    options o = problem.attention.to_options();
    o.deterministic = problem.deterministic;
    const dtype type = parse_dtype(problem.attention.dtype);
    if (on_cpu(problem)) return std::make_unique<tune::CpuProblem>(o, problem.shape, type, pass);
    return std::make_unique<tune::GpuProblem>(o, problem.shape, type, problem.device, pass);
}

// Why a tile is out, its results being in `problem`; "" where they are right.
std::string wrong_results(const PlanArguments& problem, Pass pass, const std::string& tile, const Results& results,
                          const Results& table) {
    const double allowed = on_cpu(problem) ? 0.0 : tolerance(parse_dtype(problem.attention.dtype));
    const double off = difference(results, table);
    if (!(off <= allowed))
        return fmt::format("differs from the table's tile by {:.2g} of the largest value, allowed is {:.2g}", off,
                           allowed);
    return on_cpu(problem) ? "" : tune::wrong_against_oracle(problem, pass, tile);
}

PassReport tune_pass(const PlanArguments& problem, Pass pass, double seconds) {
    const tune::Tiles tiles = tune::tiles_of(problem, pass);
    PassReport report{pass, tiles.kernel, {}};
    if (tiles.tiles.empty()) return report;
    const std::unique_ptr<tune::MeasuredProblem> measured = make_problem(problem, pass);
    Results table;
    for (const tune::NamedTile& tile : tiles.tiles) {
        const bool first = report.contestants.empty();
        Contestant& contestant = report.contestants.emplace_back();
        contestant.tile = tile.tile;
        contestant.choice = tile.choice;
        try {
            const Progress progress(fmt::format("{}: checking the {}", tune::name(pass), tile.tile));
            tune::choose(problem, pass, tile);
            const Results results = measured->results();
            if (first) table = results;
            contestant.out_because = wrong_results(problem, pass, tile.tile, results, table);
            contestant.wrong = !contestant.out_because.empty();
            if (contestant.wrong) {
                if (first) return report;  // nothing to measure by
                continue;
            }
            contestant.sample = measured->sampler();
            if (on_cpu(problem))
                contestant.sample = [sample = contestant.sample, choice = tile.choice] {
                    use_choice(choice, false);
                    return sample();
                };
        } catch (const std::runtime_error& failure) {
            if (first) throw;
            contestant.out_because = failure.what();
        }
    }
    {
        const Progress progress(fmt::format("{}: timing {} tiles", tune::name(pass), report.contestants.size()));
        tune::time_in_turns(report.contestants, seconds);
    }
    report.best = tune::best_of(report.contestants);
    use_choice(tune::measured_choice(report.contestants[report.best], report.contestants.front()), true);
    report.kept = true;
    return report;
}

void print(const PassReport& report) {
    fmt::print("{}: {}\n", tune::name(report.pass), report.kernel);
    if (report.contestants.empty())
        fmt::print("  has no tiles to choose from for this type and these head dimensions\n");
    for (std::size_t n = 0; n < report.contestants.size(); ++n) {
        const Contestant& c = report.contestants[n];
        if (c.out_because.empty())
            fmt::print("  {:<50} {:>10.4f} ms  {:.3f}{}{}\n", c.tile, c.milliseconds,
                       c.milliseconds / report.contestants.front().milliseconds, n == 0 ? "  the library's own" : "",
                       report.kept && n == report.best ? "  kept" : "");
        else
            fmt::print("  {:<50} {}{}\n", c.tile, c.wrong ? "WRONG: " : "left out: ", c.out_because);
    }
}

nlohmann::ordered_json to_json(const PassReport& report) {
    nlohmann::ordered_json tiles = nlohmann::ordered_json::array();
    for (const Contestant& c : report.contestants) {
        nlohmann::ordered_json row = {{"tile", c.tile}};
        if (c.out_because.empty())
            row["milliseconds"] = c.milliseconds;
        else
            row[c.wrong ? "wrong" : "left_out"] = c.out_because;
        tiles.push_back(std::move(row));
    }
    nlohmann::ordered_json json = {{"pass", tune::name(report.pass)}, {"kernel", report.kernel}, {"tiles", tiles}};
    if (report.kept) json["kept"] = report.contestants[report.best].tile;
    return json;
}

std::string choices_file() {
    return nlohmann::json::parse(cuda_info())["choices"]["file"].get<std::string>();
}

void require_gpu(int ordinal) {
    if (const std::string why = gpu_resources::why_not(ordinal); !why.empty()) throw std::runtime_error(why);
    if (const auto nvrtc = nlohmann::json::parse(cuda_info())["nvrtc"]; !nvrtc["found"].get<bool>())
        throw std::runtime_error(nvrtc["why_not"].get<std::string>());
}

int measure(TuneArguments a) {
    ShapeOptions& shape = a.problem.shape;
    const bool cpu = a.device == "cpu";
    if (cpu)
        a.problem.attention.device = "cpu";
    else
        a.problem.device = std::stoi(a.device);
    const std::int64_t tokens = cpu ? 1 : kTokens, hidden = cpu ? kCpuHidden : kHidden;
    if (shape.batch == 0) shape.batch = std::max<std::int64_t>(1, tokens / std::max<std::int64_t>(1, shape.seqlen_q));
    if (shape.heads == 0) shape.heads = std::max(shape.kv_heads, std::max<std::int64_t>(1, hidden / shape.head_dim));
    shape.complete();
    if (a.problem.attention.dtype.empty()) a.problem.attention.dtype = cpu ? "fp32" : "bf16";
    if (!cpu) require_gpu(a.problem.device);
    forget_choices(false);  // the others are compared with the library's own tiles
    std::vector<PassReport> reports;
    for (const Pass pass : {Pass::forward, Pass::backward})
        if (a.pass == "both" || a.pass == tune::name(pass)) reports.push_back(tune_pass(a.problem, pass, a.seconds));
    bool wrong = false;
    nlohmann::ordered_json passes = nlohmann::ordered_json::array();
    for (const PassReport& report : reports) {
        wrong = wrong || std::ranges::any_of(report.contestants, &Contestant::wrong);
        if (a.json)
            passes.push_back(to_json(report));
        else
            print(report);
    }
    if (a.json)
        fmt::print("{}\n", nlohmann::ordered_json{{"passes", passes}, {"file", choices_file()}}.dump(2));
    else
        fmt::print("what is kept: {}\n", choices_file());
    return wrong ? exit_wrong_result : exit_ok;
}

int list(bool json) {
    const auto choices = nlohmann::ordered_json::parse(cuda_info())["choices"];
    if (json) {
        fmt::print("{}\n", choices.dump(2));
        return exit_ok;
    }
    const std::string why_not = choices["why_not"];
    fmt::print("{}: {} choices{}\n", choices["file"].get<std::string>(), choices["list"].size(),
               why_not.empty() ? "" : "; not used: " + why_not);
    for (const auto& each : choices["list"])
        fmt::print("\n{} {}\n  {}, by version {}\n  {}\n", each["device"].get<std::string>(),
                   each["for"].get<std::string>(), each["tile"].get<std::string>(), each["version"].get<std::string>(),
                   each["why"].get<std::string>());
    return exit_ok;
}

int forget() {
    forget_choices(true);
    fmt::print("{}: no choices\n", choices_file());
    return exit_ok;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("tune", "Measure kernels' tiles on this GPU or CPU and keep the best");
    command->footer(examples);
    auto a = std::make_shared<TuneArguments>();
    const std::string group = "The problem";
    a->problem.shape.add_to(*command, group);
    command->add_option("--seqlen", a->problem.shape.seqlen_q, "Queries, and keys where --seqlen-k is not given")
        ->check(at_least_1)
        ->excludes("--seqlen-q")
        ->group(group);
    a->problem.attention.add_scores_to(*command);
    a->problem.attention.add_dropout_to(*command);
    a->problem.attention.add_dtype_to(*command);
    command->add_flag("--deterministic", a->problem.deterministic, "Backward in a fixed order");
    command->add_option("--pass", a->pass, "forward, backward or both")
        ->check(CLI::IsMember({"forward", "backward", "both"}))
        ->capture_default_str();
    command->add_option("--device", a->device, "The GPU's ordinal, or cpu")
        ->check([](const std::string& text) { return text == "cpu" ? std::string() : at_least_0(text); })
        ->capture_default_str();
    CLI::Option* threads = command->add_option("--threads", a->problem.attention.threads, "Of the CPU; default all")
                               ->check(CLI::Range(1, FLASHTILE_MAX_THREADS));
    command->add_option("--seconds", a->seconds, "For the timing of each pass")->check(above_0)->capture_default_str();
    command->add_flag("--list", a->list, "Print what was kept");
    command->add_flag("--forget", a->forget, "Forget all that was kept");
    command->add_flag("--json", a->json, "Print JSON");
    command->callback([a, command, threads, &exit_code] {
        if (threads->count() != 0 && a->device != "cpu")
            throw CLI::ValidationError("--threads", "is given, and only --device=cpu has a use for it");
        for (const char* flag : {"--batch", "--seqlen-q"})
            if (command->count(flag) != 0 && command->get_option(flag)->as<std::int64_t>() == 0)
                throw CLI::ValidationError(flag, "is 0, allowed is a whole number of at least 1");
        if (a->list) refuse_flags_beside(*command, "--list", {"--json"}, "which measures nothing");
        if (a->forget) refuse_flags_beside(*command, "--forget", {"--json"}, "which measures nothing");
        exit_code = a->list ? list(a->json) : a->forget ? forget() : measure(*a);
    });
}

}  // namespace flashtile::cli
