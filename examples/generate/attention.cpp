#include "attention.h"

#include <cmath>

#include "bf16.h"

namespace gemma {

namespace ft = flashtile;

Attention::Attention(const Config& config, Threads& threads, KeyValueCache& cache)
    : config_(config),
      threads_(threads),
      cache_(cache),
      local_(rotation(config.local_theta, cache.longest(), config.head_dim / 2)),
      global_(rotation(config.global_theta, cache.longest(), config.head_dim / 2)) {}

Attention::Rotation Attention::rotation(double theta, std::int64_t positions, std::int64_t angles) {
    Rotation rotation;
    for (std::int64_t position = 0; position < positions; ++position)
        for (std::int64_t n = 0; n < angles; ++n) {
            const double angle =
                static_cast<double>(position) * std::pow(theta, -static_cast<double>(n) / static_cast<double>(angles));
            rotation.cosines.push_back(static_cast<float>(std::cos(angle)));
            rotation.sines.push_back(static_cast<float>(std::sin(angle)));
        }
    return rotation;
}

void Attention::operator()(std::int64_t layer, const Step& step, std::span<float> qkv, std::span<float> out) {
    const auto start = std::chrono::steady_clock::now();
    if (cache_.dtype() == ft::fp32) {
        run(layer, step, qkv.data(), out.data());
    } else {
        rounded_qkv_.resize(qkv.size());
        rounded_out_.resize(out.size());
        for (std::size_t n = 0; n < qkv.size(); ++n) rounded_qkv_[n] = to_bf16(qkv[n]);
        run(layer, step, rounded_qkv_.data(), rounded_out_.data());
        for (std::size_t n = 0; n < out.size(); ++n) out[n] = from_bf16(rounded_out_[n]);
    }
    time_ += std::chrono::steady_clock::now() - start;
}

void Attention::run(std::int64_t layer, const Step& step, void* qkv, void* out) {
    const bool is_local = config_.is_local[static_cast<std::size_t>(layer)];
    const auto tokens = static_cast<std::int64_t>(step.tokens.size());
    const auto heads = config_.heads, kv_heads = config_.kv_heads, d = config_.head_dim;
    const auto dtype = cache_.dtype();

    // Views of the heads from `first` on, within the rows of qkv.
    const auto view = [&](std::int64_t first, std::int64_t count) {
        auto* const begin = static_cast<std::byte*>(qkv) + first * d * (dtype == ft::fp32 ? 4 : 2);
        return ft::view(begin, dtype, {tokens, count, d}, {(heads + 2 * kv_heads) * d, d, 1});
    };
    const auto q = view(0, heads), k = view(heads, kv_heads), v = view(heads + kv_heads, kv_heads);

    const auto& [cosines, sines] = is_local ? local_ : global_;
    const auto table = [&](const std::vector<float>& values) {
        return ft::view(values.data(), ft::fp32, {cache_.longest(), d / 2});
    };
    const ft::options options = {.causal = true,
                                 .window = {.left = is_local ? config_.window - 1 : -1},
                                 .scale = config_.scale,
                                 .executor = &threads_.executor()};
    cache_.append(layer, step, options,
                  {.k = k, .v = v, .rotary_cos = table(cosines), .rotary_sin = table(sines), .q = q, .q_out = q});
    cache_.attend(layer, step, options, q, ft::view(out, dtype, {tokens, heads, d}));
}

}  // namespace gemma
