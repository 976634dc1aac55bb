// attention_options.cpp: see attention_options.h.
#include "attention_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>

namespace flashtile::cli {
namespace {

std::vector<std::string> isa_flag_names() {
    std::vector<std::string> names = instruction_set_names();
    names.insert(names.begin(), "auto");
    return names;
}

// CLI11 would read -1, and every number that does not fit, as 2^64 - 1.
std::string check_seed(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return "";
    return "is " + text + ", allowed is a whole number from 0 to 2^64 - 1";
}

// A number that is 0 in fp32 would turn the cap off. The library itself refuses other wrong numbers.
std::string check_softcap(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    if (value == 0.0 || static_cast<float>(value) != 0.0f) return "";
    return fmt::format("is {}, allowed is 0 (off) or a number from {}", text, FLASHTILE_MIN_SOFTCAP);
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
    app.add_option("--align,--alignment", align, "Corner that window and ALiBi count from when not causal")
        ->check(CLI::IsMember({"bottom-right", "top-left"}))
        ->type_name("CORNER");
    app.add_option("--softcap", softcap, "Cap scores: C tanh(s / C); 0 is off")->check(check_softcap)->type_name("C");
    app.add_option("--scale", scale, "Factor of q.k (default: 1/sqrt(head dimension))")->type_name("X");
}

void AttentionOptions::add_dropout_to(CLI::App& app) {
    app.add_option("--dropout,--dropout-p", dropout, "Probability in [0, 1) that a weight is dropped")->type_name("P");
    app.add_option("--seed", seed, "Of the dropout mask")->check(check_seed)->type_name("N");
}

void AttentionOptions::add_dtype_to(CLI::App& app) {
    app.add_option("--dtype", dtype, "Compute in this type (default: the inputs'; fp64 inputs in fp32)")
        ->check(CLI::IsMember(dtype_names()))
        ->type_name("TYPE");
}

void AttentionOptions::add_execution_to(CLI::App& app) {
    app.add_option("--threads", threads, "Threads to run on (default: FLASHTILE_THREADS, or all CPUs)")
        ->check(CLI::Range(0, FLASHTILE_MAX_THREADS))
        ->type_name("N");
    const std::vector<std::string> sets = isa_flag_names();
    app.add_option("--isa", isa, fmt::format("Instruction set: {}", fmt::join(sets, ", ")))
        ->check(CLI::IsMember(sets))
        ->type_name("SET");
    app.add_option("--device", device, "Where to compute: cpu, cuda")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->type_name("DEVICE");
}

void AttentionOptions::add_bits_to(CLI::App& app) {
    app.add_flag("--batch-invariant", batch_invariant, "A row's bits do not depend on the rest of the batch");
    app.add_flag("--exact-max", exact_max, "On CUDA the accuracy of exact row maxima; no change on the CPU");
}

void AttentionOptions::add_serving_to(CLI::App& app) {
    app.add_option("--attention-chunk", attention_chunk, "Hide keys of other chunks of N positions; 0 is off")
        ->type_name("N");
    app.add_option("--num-splits", num_splits, "Splits of a decoded sequence's keys; 0: the library's rule")
        ->type_name("N");
}

void AttentionOptions::add_shard_to(CLI::App& app) {
    app.add_option("--diagonal", diagonal, "Shift the diagonal of causal, window and ALiBi by N keys")->type_name("N");
    app.add_option("--origin", origin, "Sequence, head, query and key of a whole problem that this one starts at")
        ->delimiter(',')
        ->expected(4)
        ->type_name("B,H,I,J");
}

void AttentionOptions::add_to(CLI::App& app) {
    add_scores_to(app);
    add_dropout_to(app);
    add_dtype_to(app);
    add_bits_to(app);
    add_serving_to(app);
    add_shard_to(app);
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
    o.batch_invariant = batch_invariant;
    o.exact_max = exact_max;
    o.attention_chunk = attention_chunk;
    o.num_splits = num_splits;
    o.diagonal = diagonal;
    o.origin = {origin.at(0), origin.at(1), origin.at(2), origin.at(3)};
    o.threads = threads;
    o.isa = parse_isa(isa);
    return o;
}

}  // namespace flashtile::cli
