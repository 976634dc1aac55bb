#include "tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <stdexcept>

namespace gemma {
namespace {

constexpr std::string_view space = "\u2581", replacement = "\ufffd";

// Bytes of the character that `text` starts with, or 0 where they are not UTF-8.
std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t n) { return n < text.size() ? static_cast<unsigned char>(text[n]) : 0u; };
    const auto first = byte(0);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    for (std::size_t n = 1; n < length; ++n)
        if ((byte(n) & 0xc0) != 0x80) return 0;
    const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    const bool too_large = first == 0xf4 && byte(1) >= 0x90;
    return overlong || surrogate || too_large ? 0 : length;
}

// Spaces as the tokens have them, and nothing but UTF-8.
std::string normalise(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const auto length = character_length(text);
        if (length == 0)
            result += replacement;
        else if (text.front() == ' ')
            result += space;
        else
            result += text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
}

// A piece of the text that will be a token, in a list whose order is the text's. It is empty once it is part of
// another.
struct Symbol {
    std::string_view text;
    std::int32_t token;  // -1: none
    bool is_fixed;       // user-defined: never merged
    int previous, next;  // -1: none
};

// Two neighbours that could become one token.
struct Merge {
    int left, right;
    std::int32_t token;
    float score;
    std::size_t size;  // of both: if it changed, one of them was merged with something else

    // The best score comes first, and the leftmost of several.
    bool operator<(const Merge& other) const { return score != other.score ? score < other.score : left > other.left; }
};

}  // namespace

Tokenizer::Tokenizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    bytes_.fill(-1);
    for (std::size_t n = 0; n < pieces_.size(); ++n) {
        const auto& piece = pieces_[n];
        const auto number = static_cast<std::int32_t>(n);
        if (piece.type == Type::normal) numbers_.emplace(piece.text, number);
        if (piece.type == Type::user_defined && !piece.text.empty()) user_defined_.push_back(number);
        if (piece.type == Type::byte)  // <0xAB>
            bytes_.at(std::strtoul(std::string(piece.text.substr(3, 2)).c_str(), nullptr, 16)) = number;
    }
    if (std::ranges::find(bytes_, -1) != bytes_.end())
        throw std::runtime_error("tokenizer: it has no token for some byte, so some characters would be lost");
    std::ranges::stable_sort(user_defined_, std::ranges::greater{}, [this](std::int32_t number) {
        return pieces_[static_cast<std::size_t>(number)].text.size();
    });
}

Tokenizer Tokenizer::from_file(const flashtile::io::SafetensorsFile& file) {
    namespace io = flashtile::io;
    const auto row = [&](const char* name, io::DType dtype) -> const io::Array& {
        const auto& array = file.at(name);
        if (array.dtype != dtype || array.shape.size() != 1)
            throw io::FileError(std::string("model: ") + name + " is " + io::name(array.dtype) + " " +
                                io::to_string(array.shape) + ", expected one row of " + io::name(dtype));
        return array;
    };
    // Copied, since a file need not have them aligned.
    const auto values = [&]<class T>(const char* name, io::DType dtype, T) {
        const auto& array = row(name, dtype);
        std::vector<T> copy(array.elements());
        if (!copy.empty()) std::memcpy(copy.data(), array.data, array.bytes());
        return copy;
    };
    const auto& bytes = row("tokenizer.text", io::DType::uint8);
    const std::string_view text(static_cast<const char*>(bytes.data), bytes.elements());
    const auto ends = values("tokenizer.ends", io::DType::int64, std::int64_t());
    const auto scores = values("tokenizer.scores", io::DType::fp32, float());
    const auto types = values("tokenizer.types", io::DType::uint8, Type());
    if (scores.size() != ends.size() || types.size() != ends.size())
        throw io::FileError("model: the tokenizer has " + std::to_string(ends.size()) + " ends, " +
                            std::to_string(scores.size()) + " scores and " + std::to_string(types.size()) + " types");
    std::vector<Piece> pieces;
    std::int64_t begin = 0;
    for (std::size_t n = 0; n < ends.size(); begin = ends[n++]) {
        if (ends[n] < begin || ends[n] > static_cast<std::int64_t>(text.size()))
            throw io::FileError("model: tokenizer.ends[" + std::to_string(n) + "] is " + std::to_string(ends[n]) +
                                ", allowed is " + std::to_string(begin) + " to " + std::to_string(text.size()));
        const auto size = static_cast<std::size_t>(ends[n] - begin);
        pieces.push_back({text.substr(static_cast<std::size_t>(begin), size), scores[n], types[n]});
    }
    return Tokenizer(std::move(pieces));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
    const auto normal = normalise(text);
    std::vector<Symbol> symbols;
    for (std::string_view rest = normal; !rest.empty(); rest.remove_prefix(symbols.back().text.size())) {
        const auto place = static_cast<int>(symbols.size());
        const auto defined = std::ranges::find_if(user_defined_, [&](std::int32_t number) {
            return rest.starts_with(pieces_[static_cast<std::size_t>(number)].text);
        });
        if (defined != user_defined_.end()) {
            const auto length = pieces_[static_cast<std::size_t>(*defined)].text.size();
            symbols.push_back({rest.substr(0, length), *defined, true, place - 1, place + 1});
        } else {
            const auto character = rest.substr(0, character_length(rest));
            const auto found = numbers_.find(character);
            symbols.push_back({character, found == numbers_.end() ? -1 : found->second, false, place - 1, place + 1});
        }
    }
    if (!symbols.empty()) symbols.back().next = -1;

    std::priority_queue<Merge> merges;
    const auto consider = [&](int left, int right) {
        if (left < 0 || right < 0) return;
        const auto &a = symbols[static_cast<std::size_t>(left)], &b = symbols[static_cast<std::size_t>(right)];
        if (a.is_fixed || b.is_fixed) return;
        const std::string_view both{a.text.data(), a.text.size() + b.text.size()};
        const auto found = numbers_.find(both);
        if (found != numbers_.end())
            merges.push(
                {left, right, found->second, pieces_[static_cast<std::size_t>(found->second)].score, both.size()});
    };
    for (int n = 1; n < static_cast<int>(symbols.size()); ++n) consider(n - 1, n);
    while (!merges.empty()) {
        const auto merge = merges.top();
        merges.pop();
        auto &left = symbols[static_cast<std::size_t>(merge.left)],
             &right = symbols[static_cast<std::size_t>(merge.right)];
        if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != merge.size) continue;
        left.text = {left.text.data(), merge.size};
        left.token = merge.token;
        right.text = {};
        left.next = right.next;
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = merge.left;
        consider(left.previous, merge.left);
        consider(merge.left, left.next);
    }

    std::vector<std::int32_t> tokens;
    for (const auto& symbol : symbols) {
        if (symbol.text.empty()) continue;
        if (symbol.token >= 0)
            tokens.push_back(symbol.token);
        else
            for (const char byte : symbol.text) tokens.push_back(bytes_[static_cast<unsigned char>(byte)]);
    }
    return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    for (const auto token : tokens) {
        const auto& piece = pieces_.at(static_cast<std::size_t>(token));
        if (piece.type == Type::byte) {
            text += static_cast<char>(std::ranges::find(bytes_, token) - bytes_.begin());
        } else if (piece.type != Type::control) {
            auto rest = piece.text;
            for (std::size_t at; (at = rest.find(space)) != rest.npos; rest.remove_prefix(at + space.size()))
                text.append(rest.substr(0, at)) += ' ';
            text += rest;
        }
    }
    return text;
}

}  // namespace gemma
