// config.h: the shape of a Gemma 3 text model, from the JSON in its file's metadata (Hugging Face's names).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gemma {

struct Config {
    std::int64_t hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
    std::int64_t max_positions;
    std::int64_t window;                   // keys that a query of a local layer sees, its own among them
    std::vector<bool> is_local;            // by layer: sees a window, or everything before
    double local_theta, global_theta;      // rotary bases
    float scale;                           // of scores
    float epsilon;                         // of RMS normalisation
    std::int32_t first_token, last_token;  // begin a text, end one

    std::int64_t layers() const { return static_cast<std::int64_t>(is_local.size()); }
};

// Throws std::runtime_error where something is missing or cannot be.
Config parse_config(const std::string& json);

}  // namespace gemma
