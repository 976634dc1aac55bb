// verify.cpp: `flashtile verify`: forward and backward against the fp64 oracle, on a given problem, on cases of the
// conformance list, or on random problems; a failure comes with the line that reproduces it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention_options.h"
#include "commands.h"
#include "conformance/case_list.h"
#include "conformance/judge.h"
#include "e4m3_flags.h"
#include "flags_beside.h"
#include "function_flags.h"
#include "number_checks.h"
#include "progress.h"
#include "shape_options.h"

namespace flashtile::cli {
namespace {

using conformance::Case;
using conformance::Verdict;

struct VerifyArguments {
    AttentionOptions attention;
    std::uint64_t random = 0;
    std::string case_prefix;
    bool json = false;

    // The problem of the flags, where neither --random nor --case is given.
    ShapeOptions shape;
    Case problem;  // all but its sizes
    std::string alibi;
    std::string bias;
    std::string mask;
    std::string sinks;
    E4m3Flags e4m3;
    FunctionFlags functions;
};

struct Job {
    Case problem;
    std::string reproduce;
};

struct Result {
    const Job& job;
    Verdict verdict;
};

// "bhqk" with a 1 for every dimension that is not spanned, as --bias takes it.
conformance::BroadcastSpec parse_spans(const std::string& name, const std::string& text) {
    conformance::BroadcastSpec spec;
    if (text.empty()) return spec;
    spec.present = true;
    const std::string letters = "bhqk";
    bool good = text.size() == 4;
    for (std::size_t n = 0; n < 4 && good; ++n) {
        good = text[n] == letters[n] || text[n] == '1';
        spec.spans[n] = text[n] != '1';
    }
    if (!good) throw CLI::ValidationError(name, "is '" + text + "', allowed is bhqk with any letter replaced by 1");
    return spec;
}

conformance::Scaling scaling_of(const std::string& name) {
    using conformance::Scaling;
    return name == "none"     ? Scaling::none
           : name == "tensor" ? Scaling::whole
           : name == "head"   ? Scaling::heads
                              : Scaling::blocks;
}

Case problem_of(const VerifyArguments& a) {
    const options o = a.attention.to_options();
    Case c = a.problem;
    if (!a.attention.dtype.empty()) c.type = parse_dtype(a.attention.dtype);
    ShapeOptions shape = a.shape;
    shape.complete();
    c.name = "given";
    c.batch = shape.batch;
    c.heads = shape.heads;
    c.kv_heads = shape.kv_heads;
    c.seqlen_q = shape.seqlen_q;
    c.seqlen_k = shape.seqlen_k;
    c.head_dim = shape.head_dim;
    c.head_dim_v = shape.head_dim_v;
    if (c.lengths_k.empty()) c.lengths_k = c.lengths_q;
    if (c.lengths_k.size() != c.lengths_q.size())
        throw CLI::ValidationError(
            "--lengths-k", "has " + std::to_string(c.lengths_k.size()) + " entries, allowed is as many as --lengths-q");
    for (const auto& [flag, list] : {std::pair("--seqused-k", &c.used_k), std::pair("--seqused-q", &c.used_q),
                                     std::pair("--first-k", &c.first_k), std::pair("--diagonals", &c.diagonals),
                                     std::pair("--origins-i", &c.origins_i), std::pair("--origins-j", &c.origins_j)})
        if (!list->empty() && static_cast<std::int64_t>(list->size()) != c.sequences())
            throw CLI::ValidationError(
                flag, "has " + std::to_string(list->size()) + " entries, allowed is one for each sequence");
    c.causal = o.causal;
    c.window = o.window;
    c.align_top_left = o.align_top_left;
    c.scale = o.scale;
    c.softcap = o.softcap;
    if (!a.alibi.empty())
        c.slopes = a.alibi == "h" ? conformance::Slopes::per_head : conformance::Slopes::per_batch_and_head;
    if (!a.sinks.empty())
        c.sinks = a.sinks == "fp32" ? conformance::Sinks::in_fp32 : conformance::Sinks::in_the_inputs_type;
    if (a.e4m3.present()) {
        const conformance::Scaling scaling = scaling_of(a.e4m3.scales);
        c.e4m3 = {.present = true,
                  .keys_only = a.e4m3.keys_only(),
                  .q = scaling,
                  .k = scaling,
                  .v = scaling,
                  .block = a.e4m3.block};
    }
    c.bias = parse_spans("--bias", a.bias);
    c.mask = parse_spans("--mask", a.mask);
    c.score_function = a.functions.score;
    c.mask_function = a.functions.mask;
    c.dropout = o.dropout;
    c.seed = o.seed;
    c.chunk = o.attention_chunk;
    c.num_splits = o.num_splits;
    c.diagonal = o.diagonal;
    c.origin = o.origin;
    c.threads = o.threads;
    return c;
}

std::string given_flags(const CLI::App& command) {
    std::string line = "flashtile verify";
    for (const CLI::Option* option : command.get_options()) {
        if (option->count() == 0 || option->get_name() == "--json") continue;
        line += ' ' + option->get_name();
        std::string values;
        for (const std::string& value : option->results()) {
            const bool quoted = value.find_first_of(" *()[]<>|&;?!#") != std::string::npos;  // a function's text
            values += (values.empty() ? "=" : ",") + (quoted ? '\'' + value + '\'' : value);
        }
        if (option->get_items_expected_max() != 0) line += values;
    }
    return line;
}

std::vector<Job> jobs_of(const VerifyArguments& a, const CLI::App& command) {
    // Random and named problems have sizes and options of their own.
    constexpr const char* because = "whose problems are made";
    if (a.random != 0) refuse_flags_beside(command, "--random", {"--seed", "--json", "--isa", "--device"}, because);
    if (!a.case_prefix.empty()) refuse_flags_beside(command, "--case", {"--json", "--isa", "--device"}, because);
    std::vector<Job> jobs;
    std::string where = a.attention.isa == "auto" ? "" : " --isa=" + a.attention.isa;
    if (a.attention.device != "cpu") where += " --device=" + a.attention.device;
    for (std::uint64_t n = 0; n < a.random; ++n) {
        const std::uint64_t seed = a.attention.seed + n;
        jobs.push_back(
            {conformance::random_case(seed), "flashtile verify --random=1 --seed=" + std::to_string(seed) + where});
    }
    if (!a.case_prefix.empty()) {
        for (const Case& c : conformance::named_cases())
            if (c.name.rfind(a.case_prefix, 0) == 0) jobs.push_back({c, "flashtile verify --case=" + c.name + where});
        if (jobs.empty())
            throw CLI::ValidationError("--case", "is '" + a.case_prefix + "', and no case's name starts so");
    }
    if (jobs.empty()) jobs.push_back({problem_of(a), given_flags(command)});
    return jobs;
}

void print_failure(const Result& r) {
    std::printf("WRONG %s: %s\n%s  reproduce: %s\n", r.job.problem.name.c_str(), to_string(r.job.problem).c_str(),
                r.verdict.to_string().c_str(), r.job.reproduce.c_str());
}

void print_one(const Result& r) {
    std::printf("%s\n  ran on %s\n%s", to_string(r.job.problem).c_str(), r.verdict.ran.c_str(),
                r.verdict.to_string().c_str());
}

// How much of the allowed error each tensor used at worst.
void print_summary(const std::vector<Result>& results) {
    std::map<std::string, std::pair<double, const Result*>> worst;
    for (const Result& r : results)
        for (const auto& c : r.verdict.comparisons) {
            auto& entry = worst[c.tensor];
            if (entry.second == nullptr || c.share() > entry.first) entry = {c.share(), &r};
        }
    for (const auto& [tensor, entry] : worst)
        std::printf("  %-5s worst error is %.2f of what is allowed, in %s\n", tensor.c_str(), entry.first,
                    entry.second->job.problem.name.c_str());
}

nlohmann::json to_json(const Result& r) {
    nlohmann::json comparisons = nlohmann::json::array();
    for (const auto& c : r.verdict.comparisons)
        comparisons.push_back({{"tensor", c.tensor},
                               {"max_error", c.error.max},
                               {"max_allowed", c.allowed.max},
                               {"rms_error", c.error.rms},
                               {"rms_allowed", c.allowed.rms},
                               {"ok", c.ok()}});
    return {{"name", r.job.problem.name},  {"problem", to_string(r.job.problem)}, {"ran", r.verdict.ran},
            {"ok", r.verdict.ok()},        {"comparisons", comparisons},          {"faults", r.verdict.faults},
            {"reproduce", r.job.reproduce}};
}

int verify(const VerifyArguments& arguments, const CLI::App& command) {
    const conformance::Target target =
        arguments.attention.device == "cuda" ? conformance::cuda_target() : parse_isa(arguments.attention.isa);
    const std::vector<Job> jobs = jobs_of(arguments, command);
    const bool given = jobs.front().problem.name == "given";
    std::vector<Result> results;
    std::size_t failed = 0;
    {
        Progress progress("verifying");
        for (const Job& job : jobs) {
            Verdict verdict;
            try {
                verdict = conformance::judge(job.problem, target);
            } catch (const error& e) {
                if (given || e.code() == status::unsupported) throw;
                verdict.faults.push_back(std::string("refused: ") + e.what());
            }
            if (!verdict.ok()) ++failed;
            results.push_back({job, std::move(verdict)});
            if (jobs.size() > 1)
                progress.say(std::to_string(results.size()) + " of " + std::to_string(jobs.size()) + " problems");
        }
    }
    if (arguments.json) {
        nlohmann::json rows = nlohmann::json::array();
        for (const Result& r : results) rows.push_back(to_json(r));
        const nlohmann::json report = {{"problems", results.size()}, {"failed", failed}, {"results", rows}};
        std::printf("%s\n", report.dump(2).c_str());
    } else {
        for (const Result& r : results) {
            if (!r.verdict.ok())
                print_failure(r);
            else if (results.size() == 1)
                print_one(r);
        }
        if (results.size() > 1) print_summary(results);
        std::printf("%zu of %zu problems right\n", results.size() - failed, results.size());
    }
    return failed == 0 ? exit_ok : exit_wrong_result;
}

void add_problem_flags(CLI::App& command, VerifyArguments& a) {
    const std::string group = "A problem";
    a.shape.add_to(command, group);
    Case& c = a.problem;
    const auto list = [&](const char* flag, std::vector<std::int64_t>& value, const char* help) {
        command.add_option(flag, value, help)->delimiter(',')->check(at_least_0)->group(group);
    };
    list("--lengths-q", c.lengths_q, "Packed sequences' queries, as 5,128,33");
    list("--lengths-k", c.lengths_k, "Packed sequences' keys (default: as queries)");
    list("--seqused-k,--seqused", c.used_k, "Keys that each sequence uses");
    list("--seqused-q", c.used_q, "Queries that each sequence uses");
    list("--first-k", c.first_k, "Keys before it are hidden, of each sequence");
    list("--origins-i", c.origins_i, "Query of a whole problem that each sequence starts at");
    list("--origins-j", c.origins_j, "Key of a whole problem that each sequence starts at");
    command.add_option("--diagonals", c.diagonals, "Each sequence's --diagonal, as 3,-5")->delimiter(',')->group(group);
    command
        .add_option_function<std::int64_t>(
            "--page-size", [&c](std::int64_t size) { c.cache = {.present = true, .page_size = size}; },
            "Keys in pages of so many rows; 0: in rows of a cache")
        ->check(at_least_0)
        ->group(group);
    command.add_flag("--tree", c.tree, "With a tree's mask of the last keys")->group(group);
    command.add_option("--sinks", a.sinks, "Attention sinks in this type: fp32, inputs")
        ->check(CLI::IsMember({"fp32", "inputs"}))
        ->group(group);
    command.add_option("--alibi", a.alibi, "Slopes per head (h) or per batch and head (bh)")
        ->check(CLI::IsMember({"h", "bh"}))
        ->group(group);
    command.add_option("--bias", a.bias, "A bias that spans these dimensions: bhqk, 1 where broadcast, as 1h1k")
        ->group(group);
    command.add_option("--mask", a.mask, "A boolean mask, likewise")->group(group);
    CLI::App& functions = *command.add_option_group(
        "Functions", "They may name slope[h], table[h, 0 to 30], document[b, i or j], prefix[b] and pattern[4, 4, 2]");
    a.functions.add_texts_to(functions);
    functions.add_flag("--tensor-gradients", c.tensor_gradients, "With gradients of the floats that the score names");
    a.e4m3.add_to(*command.add_option_group("Of e4m3"));
    command.add_flag("--out-in-fp32", c.out_in_fp32, "With an out of fp32 beside 16-bit inputs")->group(group);
    command.add_flag("--dlse", c.with_dlse, "With a gradient that comes in through lse")->group(group);
    command.add_flag("--deterministic", c.deterministic)->group(group);
    command.add_flag("--batch-invariant", c.batch_invariant)->group(group);
    command.add_flag("--exact-max", c.exact_max)->group(group);
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
    auto arguments = std::make_shared<VerifyArguments>();
    CLI::App* command = app.add_subcommand("verify", "Hold results against dense attention in fp64");
    command->footer(
        "Examples:\n"
        "  flashtile verify --random=200 --seed=1                  200 random problems, forward and backward\n"
        "  flashtile verify --random=1 --seed=17 --isa=avx2        one of them again, on one instruction set\n"
        "  flashtile verify --seqlen-q=500 --head-dim=128 --causal --dtype=bf16\n"
        "  flashtile verify --seqlen-q=1 --seqlen-k=5000 --heads=8 --kv-heads=2 --page-size=16 --num-splits=3\n"
        "  flashtile verify --random=200 --seed=1 --device=cuda    on a GPU\n"
        "  flashtile verify --case=options/ --isa=portable         the named cases that start so");
    auto* random = command->add_option("--random", arguments->random, "Random problems; --seed is the first one's")
                       ->check(at_least_1);
    command->add_option("--case", arguments->case_prefix, "Cases of the conformance list whose names start so")
        ->excludes(random);
    add_problem_flags(*command, *arguments);
    arguments->attention.add_scores_to(*command);
    arguments->attention.add_dropout_to(*command);
    arguments->attention.add_dtype_to(*command);
    arguments->attention.add_serving_to(*command);
    arguments->attention.add_shard_to(*command);
    arguments->attention.add_execution_to(*command);
    command->add_flag("--json", arguments->json, "Print the result as JSON");
    command->callback([arguments, command, &exit_code] { exit_code = verify(*arguments, *command); });
}

}  // namespace flashtile::cli
