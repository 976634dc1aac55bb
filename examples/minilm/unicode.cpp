#include "unicode.h"

#include <utf8proc.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace minilm {
namespace {

using CodePoint = utf8proc_int32_t;

void append(std::string& utf8, CodePoint c) {
    std::array<utf8proc_uint8_t, 4> bytes;
    const auto count = utf8proc_encode_char(c, bytes.data());
    utf8.append(bytes.begin(), bytes.begin() + count);
}

bool is_space(CodePoint c) {
    if (c == '\t' || c == '\n' || c == '\r') return true;
    const auto category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

// Controls (those that is_space takes aside), format characters and private use.
bool is_invisible(CodePoint c) {
    const auto category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

// In ASCII everything that prints and is no letter, digit or space, so $ + < = > ^ ` | ~ as well.
bool is_punctuation(CodePoint c) {
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    const auto category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// The ideograph blocks that BERT's own clean-up lists; kana and hangul are not among them.
bool is_ideograph(CodePoint c) {
    constexpr std::array<std::array<CodePoint, 2>, 8> blocks = {{{0x4e00, 0x9fff},
                                                                 {0x3400, 0x4dbf},
                                                                 {0x20000, 0x2a6df},
                                                                 {0x2a700, 0x2b73f},
                                                                 {0x2b740, 0x2b81f},
                                                                 {0x2b820, 0x2ceaf},
                                                                 {0xf900, 0xfaff},
                                                                 {0x2f800, 0x2fa1f}}};
    for (const auto& [first, last] : blocks)
        if (c >= first && c <= last) return true;
    return false;
}

std::string cleaned(std::string_view text) {
    std::string result;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    for (std::size_t at = 0; at < text.size();) {
        CodePoint c = 0;
        const auto length = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
        if (length <= 0) {
            ++at;
            continue;
        }
        at += static_cast<std::size_t>(length);
        if (is_space(c)) {
            result += ' ';
        } else if (is_ideograph(c)) {
            result += ' ';
            append(result, c);
            result += ' ';
        } else if (c != 0xfffd && !is_invisible(c)) {  // U+FFFD is what some reader put where it found no character
            append(result, c);
        }
    }
    return result;
}

std::vector<CodePoint> decomposed(const std::string& utf8) {
    constexpr auto nfd = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
    const auto size = static_cast<utf8proc_ssize_t>(utf8.size());
    const auto count = utf8proc_decompose(bytes, size, nullptr, 0, nfd);
    if (count < 0) throw std::runtime_error(utf8proc_errmsg(count));
    std::vector<CodePoint> result(static_cast<std::size_t>(count));
    utf8proc_decompose(bytes, size, result.data(), count, nfd);
    return result;
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    const auto end_word = [&] {
        if (!word.empty()) words.push_back(std::exchange(word, {}));
    };
    for (const auto c : decomposed(cleaned(text))) {
        if (utf8proc_category(c) == UTF8PROC_CATEGORY_MN) continue;
        if (is_space(c)) {
            end_word();
        } else if (is_punctuation(c)) {
            end_word();
            append(word, c);
            end_word();
        } else {
            append(word, utf8proc_tolower(c));
        }
    }
    end_word();
    return words;
}

}  // namespace minilm
