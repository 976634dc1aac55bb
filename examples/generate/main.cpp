// main.cpp: flashtile-generate, the command line of the example. Prompts in, what follows them out, and how fast it
// went.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "generate.h"
#include "io/safetensors.h"
#include "kernels.h"
#include "model.h"
#include "tokenizer.h"

namespace {

namespace fs = std::filesystem;

struct Arguments {
    fs::path model, prompts_file;
    std::vector<std::string> prompts;
    std::int64_t new_tokens = 64;
    int threads = 0;
    bool ignore_end = false, json = false;
    gemma::Settings settings;
};

std::vector<std::string> read_prompts(const fs::path& path) try {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
} catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path.string() + ": expected a JSON array of texts: " + error.what());
}

nlohmann::json json_of(const gemma::Statistics::Part& part) {
    return {{"steps", part.steps},
            {"prompt_tokens", part.prompt_tokens},
            {"new_tokens", part.new_tokens},
            {"seconds", part.time.count()},
            {"attention_seconds", part.attention.count()}};
}

void print_json(const std::vector<gemma::Request>& requests, const std::vector<std::vector<std::int32_t>>& results,
                const gemma::Tokenizer& tokenizer, const gemma::Statistics& statistics) {
    nlohmann::json document = {{"prefill", json_of(statistics.prefill)}, {"decode", json_of(statistics.decode)}};
    for (std::size_t n = 0; n < requests.size(); ++n)
        document["requests"].push_back({{"prompt_tokens", requests[n].prompt},
                                        {"new_tokens", results[n]},
                                        {"text", tokenizer.decode(results[n])}});
    // A text need not end with a whole character, but JSON must be UTF-8.
    fmt::print("{}\n", document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_part(const char* name, const gemma::Statistics::Part& part, std::int64_t tokens) {
    if (part.steps == 0) return;
    fmt::print("{:8}{:6} tokens in {:7.3f} s ({} steps): {:7.1f} tokens/s, {:4.1f}% of the time in attention\n", name,
               tokens, part.time.count(), part.steps, static_cast<double>(tokens) / part.time.count(),
               100 * part.attention / part.time);
}

void print_text(const Arguments& arguments, const std::vector<std::vector<std::int32_t>>& results,
                const gemma::Tokenizer& tokenizer, const gemma::Statistics& statistics) {
    for (std::size_t n = 0; n < results.size(); ++n)
        fmt::print("[{}] {}|{}\n\n", n + 1, arguments.prompts[n], tokenizer.decode(results[n]));
    print_part("prefill", statistics.prefill, statistics.prefill.prompt_tokens);
    print_part("decode", statistics.decode, statistics.decode.new_tokens);
    const auto beside = statistics.prefill.new_tokens;
    fmt::print("{} more new tokens came out of prefill steps; weights by {} loops, attention: {}\n", beside,
               gemma::kernels().name, flashtile::last_run());
}

void run(const Arguments& arguments) {
    const flashtile::io::SafetensorsFile file(arguments.model);
    gemma::Threads threads(arguments.threads);
    const gemma::Model model(file, threads);
    const auto tokenizer = gemma::Tokenizer::from_file(file);
    if (static_cast<std::int64_t>(tokenizer.size()) != model.config().vocabulary)
        throw std::runtime_error(fmt::format("{} has {} tokens in its tokenizer and {} in its configuration",
                                             arguments.model.string(), tokenizer.size(), model.config().vocabulary));

    std::vector<gemma::Request> requests;
    for (const auto& prompt : arguments.prompts) {
        gemma::Request request = {.prompt = {model.config().first_token}, .new_tokens = arguments.new_tokens};
        std::ranges::copy(tokenizer.encode(prompt), std::back_inserter(request.prompt));
        const auto length = static_cast<std::int64_t>(request.prompt.size()) + request.new_tokens;
        if (length > model.config().max_positions)
            throw std::runtime_error(fmt::format("prompt {} has {} tokens, with the new ones {}; allowed are {}",
                                                 requests.size() + 1, request.prompt.size(), length,
                                                 model.config().max_positions));
        requests.push_back(std::move(request));
    }
    gemma::Statistics statistics;
    const auto results = gemma::generate(model, threads, requests, arguments.settings, statistics);
    if (arguments.json)
        print_json(requests, results, tokenizer, statistics);
    else
        print_text(arguments, results, tokenizer, statistics);
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    auto& settings = arguments.settings;
    arguments.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    CLI::App app{"Continues texts: Gemma 3 with flashtile's attention, several requests at once."};
    app.add_option("--model", arguments.model, "The file that convert.py wrote")->required()->check(CLI::ExistingFile);
    auto* prompts = app.add_option("--prompt", arguments.prompts, "A text to continue; may be given several times")
                        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                        ->allow_extra_args(false);
    app.add_option("--prompts", arguments.prompts_file, "A JSON file with an array of texts to continue")
        ->check(CLI::ExistingFile)
        ->excludes(prompts);
    app.add_option("--max-new-tokens", arguments.new_tokens, "The most tokens to add to each text")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    app.add_option("--batch", settings.places, "Requests that run at once; the others wait until one ends")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--chunk", settings.chunk, "Prompt tokens of a step, of all requests together")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("--temperature", settings.temperature, "0 takes the most likely token; more draws more freely")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--seed", settings.seed, "Of the draws")->capture_default_str();
    app.add_option("--threads", arguments.threads, "Threads, of linear layers and attention alike")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_flag("--ignore-end", arguments.ignore_end, "Go on after the token that ends a text, as benchmarks want");
    app.add_flag("--json", arguments.json, "Print tokens, texts and times as JSON");
    try {
        app.parse(argc, argv);
        if (arguments.prompts.empty() && arguments.prompts_file.empty())
            throw CLI::RequiredError("--prompt or --prompts");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;  // --help comes this way too
    }
    settings.stop_at_last_token = !arguments.ignore_end;
    try {
        if (!arguments.prompts_file.empty()) arguments.prompts = read_prompts(arguments.prompts_file);
        run(arguments);
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "flashtile-generate: {}\n", error.what());
        return 2;
    }
}
