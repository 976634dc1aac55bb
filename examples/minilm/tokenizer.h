// tokenizer.h: text to token numbers as uncased BERT wants them. Text is cleaned, lower-cased, stripped of accents and
// split into words (at white space, at punctuation, around every CJK ideograph); each word is then cut into the longest
// pieces that the vocabulary holds (WordPiece).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace minilm {

class Tokenizer {
public:
    // One token a line; a token's number is its line. Throws where a special token is missing.
    explicit Tokenizer(std::istream& vocabulary);
    static Tokenizer from_file(const std::filesystem::path& vocabulary);

    // [CLS], the text's tokens, [SEP]: at most `limit` (at least 2) in all, the text being cut short where it must.
    // Bytes that are not UTF-8 are dropped. A special token spelled out in the text stands for itself.
    std::vector<std::int32_t> encode(std::string_view text, std::size_t limit) const;

    std::size_t size() const { return size_; }

private:
    void append_text(std::string_view text, std::vector<std::int32_t>& tokens) const;
    void append_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

    std::map<std::string, std::int32_t, std::less<>> numbers_;
    std::map<std::string, std::int32_t, std::less<>> specials_;
    std::size_t size_ = 0;
};

}  // namespace minilm
