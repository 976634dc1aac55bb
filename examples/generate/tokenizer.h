// tokenizer.h: text to tokens and back, as SentencePiece's byte-pair models do it, Gemma's among them. Spaces become
// U+2581. User-defined tokens (runs of newlines, HTML tags) are taken out first, the longest that fits; the rest starts
// as single characters, and the neighbours that make up the token with the best score are merged, again and again. A
// character that is no token becomes its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/safetensors.h"

namespace gemma {

class Tokenizer {
public:
    enum class Type : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

    struct Piece {
        std::string_view text;
        float score;
        Type type;
    };

    explicit Tokenizer(std::vector<Piece> pieces);

    // The pieces in a model's file, whose text they refer to.
    static Tokenizer from_file(const flashtile::io::SafetensorsFile& file);

    // No token that begins or ends a text is added, and control tokens spelled out in the text are text. Bytes that are
    // not UTF-8 become U+FFFD, each.
    std::vector<std::int32_t> encode(std::string_view text) const;

    // Control tokens have no text. Bytes need not make up whole characters.
    std::string decode(std::span<const std::int32_t> tokens) const;

    std::size_t size() const { return pieces_.size(); }

private:
    std::vector<Piece> pieces_;
    std::unordered_map<std::string_view, std::int32_t> numbers_;  // of the pieces that merging may arrive at
    std::vector<std::int32_t> user_defined_;                      // the longest first
    std::array<std::int32_t, 256> bytes_;
};

}  // namespace gemma
