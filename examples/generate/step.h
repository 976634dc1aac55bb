// step.h: what one pass through the model works on. Every request has a place in the batch; a step brings some new
// tokens for each place: a piece of its prompt, its last token, or nothing. All of them lie one after the other (a
// packed batch), so that a step is as long as it has work to do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gemma {

struct Step {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> starts = {0};   // place n has tokens[starts[n]] up to tokens[starts[n + 1]]
    std::vector<std::int32_t> before, after;  // by place: keys in the cache before the step, and after it
    std::vector<std::int32_t> wanted;         // rows of `tokens` whose logits are wanted
    std::int32_t longest = 0;                 // the most new tokens of a place

    // The next place's new tokens. With `wants_logits`, those of its last token.
    void append(std::int32_t length, std::span<const std::int32_t> new_tokens, bool wants_logits);
};

}  // namespace gemma
