// attention.h: attention as Gemma 3 has it, by flashtile: queries and keys are rotated by their positions, new keys and
// values join the cache, and every query attends to its request's keys, in local layers to a window of them. Another
// device's attention would be another implementation of this class, since the rest of the model does not touch the
// cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "cache.h"
#include "config.h"
#include "step.h"
#include "threads.h"

namespace gemma {

class Attention {
public:
    // q, k, v and the result are rounded to the cache's dtype.
    Attention(const Config& config, Threads& threads, KeyValueCache& cache);

    // qkv: a row of (heads + 2 kv_heads) x head_dim for each of the step's tokens, normalised but not rotated; its
    // content is lost. out: (tokens, heads, head_dim).
    void operator()(std::int64_t layer, const Step& step, std::span<float> qkv, std::span<float> out);

    std::chrono::duration<double> time() const { return time_; }  // spent here so far

private:
    // Cosines and sines of (position, angle).
    struct Rotation {
        std::vector<float> cosines, sines;
    };
    static Rotation rotation(double theta, std::int64_t positions, std::int64_t angles);

    void run(std::int64_t layer, const Step& step, void* qkv, void* out);

    const Config& config_;
    Threads& threads_;
    KeyValueCache& cache_;
    Rotation local_, global_;
    std::vector<std::uint16_t> rounded_qkv_, rounded_out_;
    std::chrono::duration<double> time_{};
};

}  // namespace gemma
