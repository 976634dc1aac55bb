// functions.cpp: see functions.h. Samples of the two sides alternate, and the ratio is that of their medians.
#include "bench/functions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <flashtile/flashtile.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "attention_names.h"
#include "bench/inputs.h"
#include "bench/machine.h"
#include "bench/result_file.h"
#include "block_pattern.h"
#include "commands.h"
#include "cpu_model.h"
#include "median.h"
#include "status_line.h"

namespace flashtile::cli::bench {
namespace {

constexpr std::int64_t document_rows = 256;
constexpr double kept_blocks = 0.25;

// One way to compute a point: options, and whether the point is laid out as a packed batch of documents.
struct Side {
    flashtile::options options;
    bool packed = false;
};

struct Contest {
    std::string name;
    Side function, other;
    std::string other_name;
    bool same_results = true;  // the other side computes the same
};

struct Outcome {
    double function_ms, other_ms, error;
};

// What the functions of the contests read.
struct Tensors {
    explicit Tensors(const Point& p)
        : slopes(static_cast<std::size_t>(p.heads)),
          document(static_cast<std::size_t>(p.seqlen)),
          pattern(p.seqlen, kept_blocks) {
        for (std::size_t h = 0; h < slopes.size(); ++h) slopes[h] = 0.5f / static_cast<float>(h + 1);
        for (std::size_t i = 0; i < document.size(); ++i)
            document[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / document_rows);
        for (std::int64_t start = 0; start <= p.seqlen; start += document_rows)
            starts.push_back(static_cast<std::int32_t>(start));
        using flashtile::view;
        named = {
            flashtile::named("slope", view(slopes.data(), flashtile::fp32, {p.heads})),
            flashtile::named("document", view(document.data(), flashtile::dtype::int32, {p.seqlen})),
            flashtile::named("block", view(pattern.seen.data(), flashtile::boolean, {pattern.blocks, pattern.blocks}))};
    }

    std::vector<float> slopes;
    std::vector<std::int32_t> document, starts;
    BlockPattern pattern;
    std::vector<flashtile_named_tensor> named;
};

std::vector<Contest> contests_of(const Point& p, const Tensors& tensors, flashtile::isa isa) {
    const flashtile::options plain = {.threads = p.threads, .isa = isa};
    const auto side = [&](const char* score, const char* mask) {
        Side made{plain};
        made.options.score_function = score;
        made.options.mask_function = mask;
        made.options.function_tensors = tensors.named;
        return made;
    };
    Side alibi{plain}, softcap{plain}, causal{plain}, window{plain}, packed{plain, true}, lists{plain};
    alibi.options.alibi_slopes = flashtile::view(tensors.slopes.data(), flashtile::fp32, {p.heads});
    softcap.options.softcap = 30.0f;
    causal.options.causal = true;
    window.options.window = {255, 0};
    const auto documents = static_cast<std::int64_t>(tensors.starts.size());
    packed.options.cu_seqlens_q = flashtile::view(tensors.starts.data(), flashtile::dtype::int32, {documents});
    packed.options.cu_seqlens_k = packed.options.cu_seqlens_q;
    packed.options.max_seqlen_q = packed.options.max_seqlen_k = document_rows;
    lists.options.block_lists = tensors.pattern.lists();
    return {
        {"ALiBi", side("s - slope[h] * abs(i - j)", nullptr), alibi, "alibi_slopes"},
        {"softcap", side("30.0 * tanh(s / 30.0)", nullptr), softcap, "softcap"},
        {"causal", side(nullptr, "j <= i"), causal, "causal"},
        {"window of 256", side(nullptr, "j <= i && i - j <= 255"), window, "window"},
        {"documents of 256", side(nullptr, "document[i] == document[j]"), packed, "packed batch"},
        {"blocks, a quarter", side(nullptr, "block[i // 128, j // 128]"), {plain}, "dense", false},
        {"block_lists, a quarter", lists, {plain}, "dense", false},
        {"every element", side(nullptr, "(i * 7 + j) % 13 != 5"), {plain}, "dense", false},
    };
}

// A problem with memory for its results, run forward or backward by one side or the other.
class Bench {
public:
    explicit Bench(const Point& p)
        : p_(p),
          inputs_(random_inputs(p)),
          out_(p.dtype, p.q_size()),
          lse_(flashtile::fp32, p.heads * p.seqlen),
          dq_(p.dtype, p.q_size()),
          dk_(p.dtype, p.kv_size()),
          dv_(p.dtype, p.kv_size()) {}

    Outcome run(const Contest& contest, int repeats) {
        run_once(contest.function, Pass::forward);
        run_once(contest.function, p_.pass);
        const Results ours = results();
        std::vector<double> function_ms, other_ms;
        run_once(contest.other, Pass::forward);
        run_once(contest.other, p_.pass);
        const double error = contest.same_results ? difference(ours, results()) : 0.0;
        for (int n = 0; n < repeats; ++n) {
            function_ms.push_back(time(contest.function));
            other_ms.push_back(time(contest.other));
        }
        return {median(function_ms), median(other_ms), error};
    }

private:
    // Of a call, after one that warms its side and, for backward, a forward, whose results backward reads.
    double time(const Side& side) {
        run_once(side, Pass::forward);
        const auto start = std::chrono::steady_clock::now();
        run_once(side, p_.pass);
        return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    void run_once(const Side& side, Pass pass) {
        const auto rows = [&](const Numbers& n, std::int64_t heads) {
            return side.packed ? flashtile::view(n.data(), n.dtype(), {p_.seqlen, heads, p_.head_dim})
                               : flashtile::view(n.data(), n.dtype(), {1, p_.seqlen, heads, p_.head_dim});
        };
        const flashtile::tensor q = rows(inputs_.q, p_.heads), k = rows(inputs_.k, p_.kv_heads),
                                v = rows(inputs_.v, p_.kv_heads), out = rows(out_, p_.heads);
        const flashtile::tensor lse = side.packed
                                          ? flashtile::view(lse_.data(), flashtile::fp32, {p_.heads, p_.seqlen})
                                          : flashtile::view(lse_.data(), flashtile::fp32, {1, p_.heads, p_.seqlen});
        if (pass == Pass::forward)
            flashtile::forward(side.options, q, k, v, out, lse);
        else
            flashtile::backward(side.options, q, k, v, out, lse, rows(inputs_.dout, p_.heads), rows(dq_, p_.heads),
                                rows(dk_, p_.kv_heads), rows(dv_, p_.kv_heads));
    }
    Results results() const {
        Results r;
        r.out = out_.as_floats();
        if (!has_backward(p_.pass)) return r;
        r.dq = dq_.as_floats(), r.dk = dk_.as_floats(), r.dv = dv_.as_floats();
        return r;
    }

    Point p_;
    Inputs inputs_;
    Numbers out_, lse_, dq_, dk_, dv_;
};

// How much longer the first call of a new function takes than its second, in milliseconds: the median of several
// functions, on a problem of one block.
double first_call_ms(int repeats, flashtile::isa isa) {
    const Point p{.head_dim = 64, .seqlen = 16};
    const Inputs inputs = random_inputs(p);
    const Numbers out(p.dtype, p.q_size());
    std::vector<double> more;
    for (int n = 0; n < std::max(repeats, 15); ++n) {
        const std::string score =
            fmt::format("near = abs(i - j) < {}; near ? s * 0.5 : tanh(s) - 0.{:03} * (i - j)", n + 4, n + 1);
        const auto call = [&] {
            const flashtile::options o = {.threads = 1, .isa = isa, .score_function = score.c_str()};
            const auto of = [&](const Numbers& x) {
                return flashtile::view(x.data(), x.dtype(), {1, p.seqlen, 1, p.head_dim});
            };
            const auto start = std::chrono::steady_clock::now();
            flashtile::forward(o, of(inputs.q), of(inputs.k), of(inputs.v), of(out));
            return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        };
        const double first = call();
        more.push_back(first - call());
    }
    return median(more);
}

void refuse(bool given, const char* option) {
    if (given) throw std::invalid_argument(fmt::format("{} is given, and functions has no use for it", option));
}

std::vector<Point> points_of(const Options& options) {
    std::vector<Point> points;
    for (const Pass pass : {Pass::forward, Pass::backward})
        for (const std::string& dtype : options.dtypes)
            for (const int threads : options.threads.empty() ? std::vector<int>{1} : options.threads)
                for (const std::int64_t d : options.head_dims)
                    for (const std::int64_t n :
                         options.seqlens.empty() ? std::vector<std::int64_t>{2048} : options.seqlens) {
                        if (n % document_rows != 0)
                            throw std::invalid_argument(
                                fmt::format("--seqlen is {}, allowed are multiples of {}", n, document_rows));
                        Point p{.pass = pass, .dtype = parse_dtype(dtype), .head_dim = d, .seqlen = n};
                        p.heads = options.heads ? options.heads : 4;
                        p.kv_heads = options.kv_heads ? options.kv_heads : p.heads;
                        if (p.heads % p.kv_heads != 0)
                            throw std::invalid_argument(fmt::format(
                                "--kv-heads is {}, allowed are divisors of the {} heads", p.kv_heads, p.heads));
                        p.threads = threads;
                        points.push_back(p);
                    }
    return points;
}

}  // namespace

int run_functions(const Options& options) {
    if (options.work.size() != 1)
        throw std::invalid_argument(
            fmt::format("work is {}, allowed is functions alone or others", fmt::join(options.work, " ")));
    refuse(options.device != "cpu", "--device");
    refuse(!options.plot.empty(), "--plot");
    refuse(!options.against.empty(), "--against");
    refuse(options.batch != 0, "--batch");
    const std::vector<Point> points = points_of(options);
    if (!options.json.empty()) require_writable("--json", options.json);
    const auto isa = parse_isa(options.isa);
    if (!isa_available(isa))
        throw std::invalid_argument(fmt::format("--isa is {}, which this CPU or this build cannot run", options.isa));

    fmt::print("flashtile {} on {}\n", flashtile::version(), cpu_model());
    StatusLine status;
    nlohmann::json rows = nlohmann::json::array();
    int exit_code = exit_ok;
    for (const Point& point : points) {
        fmt::print("\n{}\n{:<20} {:>12}  {:<14} {:>10} {:>10} {:>9}\n", describe(point), "function", "ms", "beside",
                   "ms", "its speed", "error");
        const Tensors tensors(point);
        Bench bench(point);
        for (const Contest& contest : contests_of(point, tensors, isa)) {
            status.say(contest.name);
            const Outcome outcome = bench.run(contest, options.repeats);
            status.clear();
            const bool wrong = !(outcome.error <= tolerance(point.dtype));
            if (wrong) exit_code = exit_wrong_result;
            const double speed = outcome.other_ms / outcome.function_ms;
            fmt::print("{:<20} {:>12.2f}  {:<14} {:>10.2f} {:>9.2f}x {:>9}\n", contest.name, outcome.function_ms,
                       contest.other_name, outcome.other_ms, speed,
                       wrong                  ? "WRONG"
                       : contest.same_results ? fmt::format("{:.1e}", outcome.error)
                                              : "");
            std::fflush(stdout);
            rows.push_back({{"function", contest.name},
                            {"pass", name_of(point.pass)},
                            {"dtype", name_of(point.dtype)},
                            {"head_dim", point.head_dim},
                            {"seqlen", point.seqlen},
                            {"heads", point.heads},
                            {"kv_heads", point.kv_heads},
                            {"threads", point.threads},
                            {"ms", outcome.function_ms},
                            {"beside", contest.other_name},
                            {"beside_ms", outcome.other_ms},
                            {"speed", speed},
                            {"error", outcome.error}});
        }
    }
    const double first = first_call_ms(options.repeats, isa);
    fmt::print("\nfirst call of a new function: {:.3f} ms more than its second\n", first);
    if (options.json.empty()) return exit_code;
    write_json(options.json, {{"machine", machine_json({})}, {"functions", rows}, {"first_call_ms", first}});
    fmt::print("\nresults: {}\n", options.json);
    return exit_code;
}

}  // namespace flashtile::cli::bench
