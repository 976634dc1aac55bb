// generate.h: continuous batching. The batch has a number of places. A request joins when a place is free, runs through
// its prompt in chunks, then a token at a time, and leaves when it ends; the others do not wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "model.h"

namespace gemma {

struct Request {
    std::vector<std::int32_t> prompt;  // at least one token
    std::int64_t new_tokens = 0;       // at most that many
};

struct Settings {
    std::int64_t places = 1;   // requests that run at once
    std::int64_t chunk = 512;  // prompt tokens of one step, of all requests together
    double temperature = 0;    // 0: greedy
    std::uint64_t seed = 0;    // request n draws with seed + n, so that it does not matter which others run
    bool stop_at_last_token = true;
};

// Steps with prompt tokens count as prefill, the others as decoding.
struct Statistics {
    struct Part {
        std::int64_t steps = 0;
        std::int64_t prompt_tokens = 0;
        std::int64_t new_tokens = 0;
        std::chrono::duration<double> time{}, attention{};
    };
    Part prefill, decode;
};

// The new tokens of each request; the model's last token, which ends a text, is not among them.
std::vector<std::vector<std::int32_t>> generate(const Model& model, Threads& threads,
                                                const std::vector<Request>& requests, const Settings& settings,
                                                Statistics& statistics);

}  // namespace gemma
