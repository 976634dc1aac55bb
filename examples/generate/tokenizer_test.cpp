// The tokenizer on a vocabulary small enough to follow by eye; check_against_torch.py compares it with SentencePiece.
#include "tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using gemma::Tokenizer;
using Type = Tokenizer::Type;

// Bytes first, so that byte n is token n; then those of `more`.
Tokenizer tokenizer(const std::vector<Tokenizer::Piece>& more) {
    static const auto bytes = [] {
        std::deque<std::string> texts;
        for (int byte = 0; byte < 256; ++byte) {
            std::array<char, 8> text;
            std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
            texts.emplace_back(text.data());
        }
        return texts;
    }();
    std::vector<Tokenizer::Piece> pieces;
    for (const auto& byte : bytes) pieces.push_back({byte, 0, Type::byte});
    pieces.insert(pieces.end(), more.begin(), more.end());
    return Tokenizer(pieces);
}

using Tokens = std::vector<std::int32_t>;

TEST(GenerateTokenizer, MergesTheBestScoreFirst) {
    const std::vector<Tokenizer::Piece> letters = {
        {"a", -9, Type::normal}, {"b", -9, Type::normal}, {"c", -9, Type::normal}};
    auto ab_first = letters, bc_first = letters;
    ab_first.insert(ab_first.end(), {{"ab", -1, Type::normal}, {"bc", -2, Type::normal}});
    bc_first.insert(bc_first.end(), {{"ab", -2, Type::normal}, {"bc", -1, Type::normal}});
    EXPECT_EQ(tokenizer(ab_first).encode("abc"), (Tokens{259, 258}));
    EXPECT_EQ(tokenizer(bc_first).encode("abc"), (Tokens{256, 260}));
}

TEST(GenerateTokenizer, TheLeftmostOfEqualPairsIsMerged) {
    const auto t = tokenizer({{"a", -9, Type::normal}, {"aa", -1, Type::normal}});
    EXPECT_EQ(t.encode("aaaaa"), (Tokens{257, 257, 256}));
}

TEST(GenerateTokenizer, AMergeThatLostANeighbourIsDropped) {
    // "bc" waits for its turn while "ab" takes b away; then "abc" is made of "ab" and c.
    const auto t = tokenizer({{"a", -9, Type::normal},
                              {"b", -9, Type::normal},
                              {"c", -9, Type::normal},
                              {"ab", -1, Type::normal},
                              {"bc", -2, Type::normal},
                              {"abc", -3, Type::normal}});
    EXPECT_EQ(t.encode("abc"), (Tokens{261}));
    EXPECT_EQ(t.encode("bcabc"), (Tokens{260, 261}));
}

TEST(GenerateTokenizer, SpacesAreLetters) {
    const auto t = tokenizer({{"\u2581", -9, Type::normal}, {"a", -9, Type::normal}, {"\u2581a", -1, Type::normal}});
    EXPECT_EQ(t.encode("a a  a"), (Tokens{257, 258, 256, 258}));
    EXPECT_EQ(t.decode(Tokens{257, 258, 256, 258}), "a a  a");
}

TEST(GenerateTokenizer, UserDefinedTokensAreTakenWhole) {
    const auto t = tokenizer({{"a", -9, Type::normal},
                              {"\n", 0, Type::user_defined},
                              {"\n\n", 0, Type::user_defined},
                              {"\na", -1, Type::normal}});
    EXPECT_EQ(t.encode("a\n\n\na"), (Tokens{256, 258, 257, 256}));
}

TEST(GenerateTokenizer, WhatIsNoTokenBecomesBytes) {
    const auto t = tokenizer({{"a", -9, Type::normal}});
    EXPECT_EQ(t.encode("aé"), (Tokens{256, 0xc3, 0xa9}));
    EXPECT_EQ(t.decode(Tokens{256, 0xc3, 0xa9}), "aé");
    EXPECT_EQ(t.encode("\n"), (Tokens{10}));
}

TEST(GenerateTokenizer, BytesThatAreNotUtf8AreReplaced) {
    const auto t = tokenizer({{"a", -9, Type::normal}, {"\ufffd", -9, Type::normal}});
    for (const auto* text : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
        auto tokens = t.encode(std::string(text) + "a");
        EXPECT_EQ(tokens.back(), 256);
        tokens.pop_back();
        EXPECT_EQ(tokens, Tokens(std::string_view(text).size(), 257));
    }
}

TEST(GenerateTokenizer, ControlTokensAreTextOnTheWayInAndNothingOnTheWayOut) {
    const auto t = tokenizer({{"<s>", 0, Type::control}, {"s", -9, Type::normal}});
    EXPECT_EQ(t.encode("<s>"), (Tokens{'<', 257, '>'}));
    EXPECT_EQ(t.decode(Tokens{256, 257, 256}), "s");
}

TEST(GenerateTokenizer, EmptyTextHasNoTokens) {
    EXPECT_EQ(tokenizer({}).encode(""), Tokens{});
}

TEST(GenerateTokenizer, NeedsEveryByte) {
    EXPECT_THROW(Tokenizer({{"a", 0, Type::normal}}), std::runtime_error);
}

}  // namespace
