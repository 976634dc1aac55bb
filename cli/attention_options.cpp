// attention_options.cpp: see attention_options.h.
#include "attention_options.h"

#include <charconv>
#include <map>

#include "instruction_sets.h"

namespace flashtile::cli {
namespace {

const std::map<std::string, flashtile::dtype> dtypes = {
    {"fp32", flashtile::fp32}, {"fp16", flashtile::fp16}, {"bf16", flashtile::bf16}};

const std::map<std::string, flashtile::isa>& isas() {
    static const auto table = [] {
        std::map<std::string, flashtile::isa> sets = {{"auto", flashtile::isa::automatic}};
        for (const auto set : kInstructionSets) sets.emplace(flashtile::name(set), set);
        return sets;
    }();
    return table;
}

std::vector<std::string> names(const auto& table) {
    std::vector<std::string> result;
    result.reserve(table.size());
    for (const auto& [name, value] : table) result.push_back(name);
    return result;
}

// CLI11 would take -1, and whatever does not fit, for 2^64 - 1.
std::string check_seed(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return "";
    return "is " + text + ", allowed is a whole number from 0 to 2^64 - 1";
}

}  // namespace

void AttentionOptions::add_scores_to(CLI::App& app) {
    // Flags with a value: `--causal` alone is bottom-right, and `--causal FILE` never takes the file for its value.
    app.add_flag("--causal{bottom-right}", causal, "Hide later keys: the last query sees the last key, or =top-left")
        ->check(CLI::IsMember({"bottom-right", "top-left"}))
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
        ->type_name("[=top-left]");
    app.add_option("--window", window, "Keys seen before and after the diagonal, inclusive; -1 is open")
        ->delimiter(',')
        ->expected(2)
        ->type_name("L,R");
    app.add_option("--align", align, "Corner that window and ALiBi count from when not causal")
        ->check(CLI::IsMember({"bottom-right", "top-left"}))
        ->type_name("CORNER");
    app.add_option("--softcap", softcap, "Cap scores: C tanh(s / C); 0 is off")->type_name("C");
    app.add_option("--scale", scale, "Factor of q.k (default: 1/sqrt(head dimension))")->type_name("X");
}

void AttentionOptions::add_dropout_to(CLI::App& app) {
    app.add_option("--dropout", dropout, "Probability in [0, 1) that a weight is dropped")->type_name("P");
    app.add_option("--seed", seed, "Of the dropout mask")->check(check_seed)->type_name("N");
}

void AttentionOptions::add_dtype_to(CLI::App& app) {
    app.add_option("--dtype", dtype, "Compute in this type (default: the inputs'; fp64 inputs in fp32)")
        ->check(CLI::IsMember(names(dtypes)))
        ->type_name("TYPE");
}

void AttentionOptions::add_execution_to(CLI::App& app) {
    app.add_option("--threads", threads, "Threads to run on (default: FLASHTILE_THREADS, or all CPUs)")
        ->check(CLI::Range(0, 4096))
        ->type_name("N");
    app.add_option("--isa", isa, "Instruction set: auto, portable, avx2, avx512, avx512_bf16, amx")
        ->check(CLI::IsMember(names(isas())))
        ->type_name("SET");
    app.add_option("--device", device, "Where to compute: cpu, cuda")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->type_name("DEVICE");
}

void AttentionOptions::add_to(CLI::App& app) {
    add_scores_to(app);
    add_dropout_to(app);
    add_dtype_to(app);
    add_execution_to(app);
}

flashtile::options AttentionOptions::to_options() const {
    flashtile::options o;
    if (causal == "bottom-right") o.causal = bottom_right;
    if (causal == "top-left") o.causal = top_left;
    o.window = {window.at(0), window.at(1)};
    o.align_top_left = align == "top-left";
    if (scale) o.scale = static_cast<float>(*scale);
    o.softcap = static_cast<float>(softcap);
    o.dropout = dropout;
    o.seed = seed;
    o.threads = threads;
    o.isa = parse_isa(isa);
    return o;
}

flashtile::dtype parse_dtype(const std::string& name) {
    return dtypes.at(name);
}

flashtile::isa parse_isa(const std::string& name) {
    return isas().at(name);
}

}  // namespace flashtile::cli
