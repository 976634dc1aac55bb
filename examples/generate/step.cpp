#include "step.h"

#include <algorithm>

namespace gemma {

void Step::append(std::int32_t length, std::span<const std::int32_t> new_tokens, bool wants_logits) {
    const auto count = static_cast<std::int32_t>(new_tokens.size());
    tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
    starts.push_back(starts.back() + count);
    before.push_back(length);
    after.push_back(length + count);
    if (wants_logits) wanted.push_back(starts.back() - 1);
    longest = std::max(longest, count);
}

}  // namespace gemma
