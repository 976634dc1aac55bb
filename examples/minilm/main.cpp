// main.cpp: flashtile-minilm, the command line of the example. Sentences in, a table of how alike they are out.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "first_layer.h"
#include "io/safetensors.h"
#include "io/unfinished.h"
#include "model.h"
#include "tokenizer.h"

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> default_sentences = {
    "A cat is asleep on the sofa.",
    "The kitten naps on the couch all afternoon.",
    "Stock markets fell sharply after the central bank raised interest rates.",
    "Shares dropped when borrowing became more expensive.",
    "How do I make soup from leftover vegetables?",
    "Fry an onion, add whatever vegetables are left in the fridge, cover with stock and let it simmer for half an "
    "hour.",
};

struct Arguments {
    fs::path model, vocabulary, first_layer;
    bool json = false;
    std::vector<std::string> sentences;
};

// Cosine similarity of every pair; the embeddings have length 1.
std::vector<std::vector<float>> similarities(const std::vector<float>& embeddings, std::size_t sentences) {
    const auto hidden = embeddings.size() / sentences;
    std::vector<std::vector<float>> table(sentences, std::vector<float>(sentences));
    for (std::size_t a = 0; a < sentences; ++a)
        for (std::size_t b = 0; b < sentences; ++b)
            for (std::size_t n = 0; n < hidden; ++n)
                table[a][b] += embeddings[a * hidden + n] * embeddings[b * hidden + n];
    return table;
}

void print_json(const Arguments& arguments, const minilm::Batch& batch, const std::vector<float>& embeddings) {
    const auto part = [](const auto& values, auto first, auto last) {
        return nlohmann::json(std::vector(values.begin() + first, values.begin() + last));
    };
    const auto hidden = embeddings.size() / batch.size();
    nlohmann::json document;
    for (std::size_t n = 0; n < batch.size(); ++n)
        document["sentences"].push_back({{"text", arguments.sentences[n]},
                                         {"tokens", part(batch.tokens, batch.starts[n], batch.starts[n + 1])},
                                         {"embedding", part(embeddings, n * hidden, (n + 1) * hidden)}});
    document["similarity"] = similarities(embeddings, batch.size());
    // A sentence need not be valid UTF-8, but JSON must.
    fmt::print("{}\n", document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const Arguments& arguments, const minilm::Batch& batch, const std::vector<float>& embeddings) {
    for (std::size_t n = 0; n < batch.size(); ++n) fmt::print("{:3}  {}\n", n + 1, arguments.sentences[n]);
    fmt::print("\n   ");
    for (std::size_t n = 0; n < batch.size(); ++n) fmt::print("{:6}", n + 1);
    fmt::print("\n");
    std::size_t number = 0;
    for (const auto& row : similarities(embeddings, batch.size())) {
        fmt::print("{:3}", ++number);
        for (const float similarity : row) fmt::print("{:6.2f}", similarity);
        fmt::print("\n");
    }
}

// What CLI11 left over. A positional option would not do: CLI11 splits a value such as "[a, b]" at its commas.
std::vector<std::string> sentences_of(const CLI::App& app) {
    std::vector<std::string> sentences;
    bool options_ended = false;
    for (const auto& argument : app.remaining()) {
        if (!options_ended && argument == "--")
            options_ended = true;
        else if (!options_ended && argument.starts_with('-'))
            throw CLI::ExtrasError({argument});
        else
            sentences.push_back(argument);
    }
    return sentences.empty() ? default_sentences : sentences;
}

void run(const Arguments& arguments) {
    const bool is_folder = fs::is_directory(arguments.model);
    const auto model_file = is_folder ? arguments.model / "model.safetensors" : arguments.model;
    const auto vocabulary =
        arguments.vocabulary.empty() ? model_file.parent_path() / "vocab.txt" : arguments.vocabulary;
    const minilm::Encoder encoder{flashtile::io::SafetensorsFile(model_file)};
    const auto tokenizer = minilm::Tokenizer::from_file(vocabulary);
    if (tokenizer.size() > encoder.vocabulary())
        throw std::runtime_error(fmt::format("{} has {} tokens, more than the {} of the model {}", vocabulary.string(),
                                             tokenizer.size(), encoder.vocabulary(), model_file.string()));

    minilm::Batch batch;
    for (const auto& sentence : arguments.sentences) batch.append(tokenizer.encode(sentence, encoder.max_tokens()));

    minilm::Attention attention;
    const auto start = std::chrono::steady_clock::now();
    const auto embeddings = encoder.encode(batch, &attention);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (!arguments.first_layer.empty()) write_longest(arguments.first_layer, encoder, batch, attention);

    if (arguments.json) return print_json(arguments, batch, embeddings);
    print_table(arguments, batch, embeddings);
    fmt::print("\n{} sentences, {} tokens in one packed batch (longest {}) in {:.1f} ms; attention: {}\n", batch.size(),
               batch.tokens.size(), batch.longest, time.count(), flashtile::last_run());
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{"Says how alike sentences are: the encoder all-MiniLM-L6-v2 with flashtile's attention."};
    app.add_option("--model", arguments.model, "Folder with model.safetensors and vocab.txt, or a .safetensors file")
        ->required()
        ->check(CLI::ExistingPath);
    app.add_option("--vocab", arguments.vocabulary, "Vocabulary (default: vocab.txt beside the model)")
        ->check(CLI::ExistingFile);
    app.add_option(
        "--dump-layer0", arguments.first_layer,
        "Write q, k, v and out of the first layer's attention, of the longest sentence, to this .safetensors");
    app.add_flag("--json", arguments.json, "Print tokens, embeddings and similarities as JSON");
    app.allow_extras();
    app.footer("SENTENCE...  in any number, after -- where one starts with a dash (default: a few to try)");
    try {
        app.parse(argc, argv);
        arguments.sentences = sentences_of(app);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;  // --help comes this way too
    }
    flashtile::io::remove_unfinished_on_signals();
    try {
        run(arguments);
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "flashtile-minilm: {}\n", error.what());
        return 2;
    }
}
