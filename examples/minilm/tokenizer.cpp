#include "tokenizer.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "unicode.h"

namespace minilm {
namespace {

constexpr std::string_view unknown = "[UNK]";
constexpr std::string_view first_token = "[CLS]";
constexpr std::string_view last_token = "[SEP]";
constexpr std::string_view specials[] = {"[PAD]", unknown, first_token, last_token, "[MASK]"};

// Longer words, in characters, are unknown: nobody writes them, and greedy matching is quadratic.
constexpr std::size_t longest_word = 100;

bool continues_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

Tokenizer::Tokenizer(std::istream& vocabulary) {
    for (std::string token; std::getline(vocabulary, token); ++size_) {
        if (token.ends_with('\r')) token.pop_back();
        numbers_.emplace(std::move(token), static_cast<std::int32_t>(size_));
    }
    for (const auto special : specials) {
        const auto found = numbers_.find(special);
        if (found == numbers_.end()) throw std::runtime_error("vocabulary: it has no " + std::string(special));
        specials_.insert(*found);
    }
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& vocabulary) {
    std::ifstream file(vocabulary);
    if (!file) throw std::runtime_error("cannot read the vocabulary " + vocabulary.string());
    return Tokenizer(file);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, std::size_t limit) const {
    std::vector<std::int32_t> tokens = {specials_.find(first_token)->second};
    while (!text.empty()) {
        // Special tokens are looked for in the text as it was given, before any clean-up.
        std::size_t plain = text.size(), skipped = 0;
        std::int32_t number = 0;
        for (const auto& [special, special_number] : specials_) {
            const auto at = text.find(special);
            if (at < plain) {
                plain = at;
                skipped = special.size();
                number = special_number;
            }
        }
        append_text(text.substr(0, plain), tokens);
        if (skipped > 0) tokens.push_back(number);
        text.remove_prefix(plain + skipped);
    }
    tokens.resize(std::min(tokens.size(), limit - 1));
    tokens.push_back(specials_.find(last_token)->second);
    return tokens;
}

void Tokenizer::append_text(std::string_view text, std::vector<std::int32_t>& tokens) const {
    for (const auto& word : split_words(text)) append_word(word, tokens);
}

void Tokenizer::append_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
    const auto before = tokens.size();
    const auto give_up = [&] {
        tokens.resize(before);
        tokens.push_back(specials_.find(unknown)->second);
    };
    const auto characters = word.size() - static_cast<std::size_t>(std::ranges::count_if(word, continues_character));
    if (characters > longest_word) return give_up();

    std::string prefix;  // "##" from the second piece on
    while (!word.empty()) {
        auto length = word.size();
        auto found = numbers_.find(prefix + std::string(word));
        while (found == numbers_.end()) {
            do {
                --length;
            } while (length > 0 && continues_character(word[length]));
            if (length == 0) return give_up();
            found = numbers_.find(prefix + std::string(word.substr(0, length)));
        }
        tokens.push_back(found->second);
        word.remove_prefix(length);
        prefix = "##";
    }
}

}  // namespace minilm
