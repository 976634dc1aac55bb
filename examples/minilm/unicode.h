// unicode.h: the text clean-up that uncased BERT was trained with, on top of utf8proc's character data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minilm {

// The words of `text` in UTF-8: controls and invalid bytes gone, lower case, no accents (decomposed, marks dropped);
// every punctuation character and every CJK ideograph is a word of its own.
std::vector<std::string> split_words(std::string_view text);

}  // namespace minilm
