// The tokenizer on a vocabulary small enough to follow by eye; check_against_torch.py compares the real one.
#include "tokenizer.h"

#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The number of a token is its place here.
const std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un",  "##aff", "##able",
                                             "##a",   "a",     ",",     "$",     "中",     "文",  "cafe",  "i",
                                             "[",     "]",     "mask",  "ᄒ",    "##ᅡ",   "##ᆫ"};

minilm::Tokenizer tokenizer() {
    std::string lines;
    for (const auto& token : vocabulary) lines += token + "\n";
    std::istringstream stream(lines);
    return minilm::Tokenizer(stream);
}

// The tokens between [CLS] and [SEP], each followed by a space.
std::string tokens(std::string_view text, std::size_t limit = 512) {
    const auto numbers = tokenizer().encode(text, limit);
    EXPECT_LE(numbers.size(), limit);
    EXPECT_EQ(vocabulary.at(static_cast<std::size_t>(numbers.front())), "[CLS]");
    EXPECT_EQ(vocabulary.at(static_cast<std::size_t>(numbers.back())), "[SEP]");
    std::string result;
    for (std::size_t n = 1; n + 1 < numbers.size(); ++n)
        result += vocabulary.at(static_cast<std::size_t>(numbers[n])) + " ";
    return result;
}

TEST(Tokenizer, TakesTheLongestPieces) {
    EXPECT_EQ(tokens("unaffable"), "un ##aff ##able ");
    EXPECT_EQ(tokens("una"), "un ##a ");
}

TEST(Tokenizer, AWordWithAPieceThatIsMissingIsUnknownAsAWhole) {
    EXPECT_EQ(tokens("unaffablez a"), "[UNK] a ");
    EXPECT_EQ(tokens("zun"), "[UNK] ");
}

TEST(Tokenizer, SplitsAtSpacePunctuationAndIdeographs) {
    EXPECT_EQ(tokens(" a\ta\u00a0a\u3000a\n"), "a a a a ");
    EXPECT_EQ(tokens("a,a$a"), "a , a $ a ");
    EXPECT_EQ(tokens("a中文a"), "a 中 文 a ");
}

TEST(Tokenizer, LowersAndStripsAccents) {
    EXPECT_EQ(tokens("CAFÉ cafe\u0301"), "cafe cafe ");
    EXPECT_EQ(tokens("İ"), "i ");
}

TEST(Tokenizer, DecomposesHangul) {
    EXPECT_EQ(tokens("한"), "ᄒ ##ᅡ ##ᆫ ");
}

TEST(Tokenizer, DropsControlsAndBytesThatAreNotUtf8) {
    EXPECT_EQ(tokens("u\u200bn\a\u00ad \xff\xc3 \ufffd a\xe4\xb8"), "un a ");
    EXPECT_EQ(tokens(std::string_view("u\0n", 3)), "un ");
}

TEST(Tokenizer, EmptyTextIsTwoTokens) {
    EXPECT_EQ(tokens(""), "");
    EXPECT_EQ(tokenizer().encode("", 512).size(), 2u);
}

TEST(Tokenizer, SpecialTokensStandForThemselvesInCapitalsOnly) {
    EXPECT_EQ(tokens("a[MASK]a [SEP]"), "a [MASK] a [SEP] ");
    EXPECT_EQ(tokens("[mask]"), "[ mask ] ");
}

TEST(Tokenizer, CutsAtTheLimitAndKeepsTheEnd) {
    EXPECT_EQ(tokens("a a a a", 6), "a a a a ");
    EXPECT_EQ(tokens("a a a a", 5), "a a a ");
    EXPECT_EQ(tokens("a", 2), "");
}

TEST(Tokenizer, WordsOfMoreThan100CharactersAreUnknown) {
    const auto word = [](std::size_t length) { return "a" + std::string(length - 1, 'a'); };
    EXPECT_EQ(tokenizer().encode(word(100), 512).size(), 102u);
    EXPECT_EQ(tokens(word(101)), "[UNK] ");
}

TEST(Tokenizer, NeedsTheSpecialTokens) {
    std::istringstream stream("[PAD]\n[UNK]\n[CLS]\n[MASK]\na\n");
    EXPECT_THROW(minilm::Tokenizer{stream}, std::runtime_error);
}

}  // namespace
