#include "config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gemma {
namespace {

// A size that must be positive, and a multiple of `unit`.
std::int64_t size(const nlohmann::json& document, const char* name, std::int64_t unit = 1) {
    const auto value = document.at(name).get<std::int64_t>();
    if (value <= 0 || value % unit != 0)
        throw std::runtime_error("configuration: " + std::string(name) + " is " + std::to_string(value) +
                                 ", allowed is a positive multiple of " + std::to_string(unit));
    return value;
}

}  // namespace

Config parse_config(const std::string& json) try {
    constexpr std::int64_t unit = 32;  // kernels.h multiplies rows of such lengths
    const auto document = nlohmann::json::parse(json);
    Config config = {
        .hidden = size(document, "hidden_size", unit),
        .intermediate = size(document, "intermediate_size", unit),
        .heads = size(document, "num_attention_heads"),
        .kv_heads = size(document, "num_key_value_heads"),
        .head_dim = size(document, "head_dim", unit),
        .vocabulary = size(document, "vocab_size", unit),
        .max_positions = size(document, "max_position_embeddings"),
        .window = size(document, "sliding_window"),
        .is_local = {},
        .local_theta = document.at("rope_local_base_freq"),
        .global_theta = document.at("rope_theta"),
        .scale = static_cast<float>(1 / std::sqrt(document.at("query_pre_attn_scalar").get<double>())),
        .epsilon = document.at("rms_norm_eps"),
        .first_token = document.at("bos_token_id"),
        .last_token = document.at("eos_token_id"),
    };
    for (const auto& type : document.at("layer_types")) config.is_local.push_back(type == "sliding_attention");
    if (config.is_local.empty()) throw std::runtime_error("configuration: layer_types is empty");
    if (config.first_token < 0 || config.first_token >= config.vocabulary)
        throw std::runtime_error("configuration: bos_token_id is " + std::to_string(config.first_token) +
                                 ", allowed is 0 to " + std::to_string(config.vocabulary - 1));
    return config;
} catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("configuration: ") + error.what());
}

}  // namespace gemma
