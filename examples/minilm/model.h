// model.h: the sentence encoder all-MiniLM-L6-v2, a BERT of 6 layers and 12 heads. Sentences of different lengths run
// as one packed batch: their tokens lie one after the other, nothing is padded, and flashtile's attention is told where
// each sentence starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/safetensors.h"
#include "layers.h"

namespace minilm {

// A packed batch: sentence n is tokens[starts[n]] up to tokens[starts[n + 1]].
struct Batch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> starts = {0};
    std::int64_t longest = 0;

    void append(std::span<const std::int32_t> sentence);
    std::size_t size() const { return starts.size() - 1; }
};

// What went through one layer's attention, each (tokens of the batch, heads, head_dim).
struct Attention {
    std::vector<float> q, k, v, out;
};

class Encoder {
public:
    static constexpr std::int64_t heads = 12;

    explicit Encoder(const flashtile::io::SafetensorsFile& weights);

    std::int64_t hidden() const { return hidden_; }
    std::int64_t head_dim() const { return hidden_ / heads; }
    std::size_t max_tokens() const { return positions_.size() / static_cast<std::size_t>(hidden_); }
    std::size_t vocabulary() const { return words_.size() / static_cast<std::size_t>(hidden_); }

    // An embedding of unit length for every sentence, (batch.size(), hidden). `first` receives the first layer's
    // attention where it is not null.
    std::vector<float> encode(const Batch& batch, Attention* first = nullptr) const;

private:
    struct Layer {
        Linear query, key, value, attention_output;
        LayerNorm attention_norm;
        Linear intermediate, output;
        LayerNorm output_norm;
    };

    std::vector<float> embed(const Batch& batch) const;
    Attention attend(const Layer& layer, const Batch& batch, std::span<const float> x) const;
    std::vector<float> pool(const Batch& batch, std::span<const float> x) const;

    std::int64_t hidden_;
    std::vector<float> words_, positions_, token_types_;
    LayerNorm embedding_norm_;
    std::vector<Layer> layers_;
};

}  // namespace minilm
