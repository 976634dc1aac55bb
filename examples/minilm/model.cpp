#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <flashtile/flashtile.hpp>
#include <string>

namespace minilm {
namespace {

namespace io = flashtile::io;

const std::string words_name = "embeddings.word_embeddings.weight";
const std::string positions_name = "embeddings.position_embeddings.weight";
const std::string embedding_norm_name = "embeddings.LayerNorm";
const std::string token_types_name = "embeddings.token_type_embeddings.weight";

std::int64_t rows(const io::SafetensorsFile& weights, const std::string& name) {
    const auto& shape = weights.at(name).shape;
    return shape.empty() ? 0 : shape.front();
}

// The values of `name`, which must be fp32 of just this shape.
std::vector<float> read(const io::SafetensorsFile& weights, const std::string& name,
                        const std::vector<std::int64_t>& shape) {
    const auto& array = weights.at(name);
    if (array.dtype != io::DType::fp32 || array.shape != shape)
        throw io::FileError("model: " + name + " is " + io::name(array.dtype) + " " + io::to_string(array.shape) +
                            ", expected fp32 " + io::to_string(shape));
    std::vector<float> values(array.elements());
    std::memcpy(values.data(), array.data, array.bytes());
    return values;
}

Linear linear(const io::SafetensorsFile& weights, const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    return {read(weights, name + ".weight", {outputs, inputs}), read(weights, name + ".bias", {outputs})};
}

LayerNorm norm(const io::SafetensorsFile& weights, const std::string& name, std::int64_t size) {
    return {read(weights, name + ".weight", {size}), read(weights, name + ".bias", {size})};
}

}  // namespace

void Batch::append(std::span<const std::int32_t> sentence) {
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
    longest = std::max(longest, static_cast<std::int64_t>(sentence.size()));
}

Encoder::Encoder(const io::SafetensorsFile& weights)
    : hidden_(rows(weights, embedding_norm_name + ".weight")),
      words_(read(weights, words_name, {rows(weights, words_name), hidden_})),
      positions_(read(weights, positions_name, {rows(weights, positions_name), hidden_})),
      token_types_(read(weights, token_types_name, {rows(weights, token_types_name), hidden_})),
      embedding_norm_(norm(weights, embedding_norm_name, hidden_)) {
    for (int number = 0;; ++number) {
        const auto name = "encoder.layer." + std::to_string(number) + ".";
        const auto intermediate = name + "intermediate.dense";
        if (!weights.contains(intermediate + ".weight")) break;
        const auto wide = rows(weights, intermediate + ".weight");
        layers_.push_back({
            .query = linear(weights, name + "attention.self.query", hidden_, hidden_),
            .key = linear(weights, name + "attention.self.key", hidden_, hidden_),
            .value = linear(weights, name + "attention.self.value", hidden_, hidden_),
            .attention_output = linear(weights, name + "attention.output.dense", hidden_, hidden_),
            .attention_norm = norm(weights, name + "attention.output.LayerNorm", hidden_),
            .intermediate = linear(weights, intermediate, hidden_, wide),
            .output = linear(weights, name + "output.dense", wide, hidden_),
            .output_norm = norm(weights, name + "output.LayerNorm", hidden_),
        });
    }
    if (hidden_ < heads || hidden_ % heads != 0)
        throw io::FileError("model: the hidden size is " + std::to_string(hidden_) + ", allowed is a multiple of " +
                            std::to_string(heads));
    if (layers_.empty()) throw io::FileError("model: it has no encoder.layer.0");
    if (token_types_.empty() || max_tokens() < 2)
        throw io::FileError("model: it has no token types, or fewer than 2 positions");
}

std::vector<float> Encoder::encode(const Batch& batch, Attention* first) const {
    auto x = embed(batch);
    std::vector<float> y(x.size());
    for (const auto& layer : layers_) {
        auto attention = attend(layer, batch, x);
        layer.attention_output(attention.out, y);
        add(x, y);
        layer.attention_norm(x);
        if (first != nullptr && &layer == &layers_.front()) *first = std::move(attention);

        std::vector<float> wide(batch.tokens.size() * layer.intermediate.bias.size());
        layer.intermediate(x, wide);
        gelu(wide);
        layer.output(wide, y);
        add(x, y);
        layer.output_norm(x);
    }
    return pool(batch, x);
}

// Each token's word, its place in the sentence and its segment (all of them the first), summed and normalised.
std::vector<float> Encoder::embed(const Batch& batch) const {
    const auto row = [this](const std::vector<float>& table, std::int64_t number) {
        return std::span(table).subspan(static_cast<std::size_t>(number * hidden_), static_cast<std::size_t>(hidden_));
    };
    std::vector<float> x(batch.tokens.size() * static_cast<std::size_t>(hidden_));
    auto rest = std::span(x);
    for (std::size_t sentence = 0; sentence < batch.size(); ++sentence) {
        for (auto token = batch.starts[sentence]; token < batch.starts[sentence + 1]; ++token) {
            const auto embedding = rest.first(static_cast<std::size_t>(hidden_));
            add(embedding, row(words_, batch.tokens[static_cast<std::size_t>(token)]));
            add(embedding, row(positions_, token - batch.starts[sentence]));
            add(embedding, row(token_types_, 0));
            rest = rest.subspan(embedding.size());
        }
    }
    embedding_norm_(x);
    return x;
}

Attention Encoder::attend(const Layer& layer, const Batch& batch, std::span<const float> x) const {
    namespace ft = flashtile;
    Attention a;
    for (auto* tensor : {&a.q, &a.k, &a.v, &a.out}) tensor->resize(x.size());
    layer.query(x, a.q);
    layer.key(x, a.k);
    layer.value(x, a.v);

    const auto packed = [&](const std::vector<float>& values) {
        return ft::view(values.data(), ft::fp32, {static_cast<std::int64_t>(batch.tokens.size()), heads, head_dim()});
    };
    const auto starts =
        ft::view(batch.starts.data(), ft::dtype::int64, {static_cast<std::int64_t>(batch.starts.size())});
    ft::forward(
        {.cu_seqlens_q = starts, .cu_seqlens_k = starts, .max_seqlen_q = batch.longest, .max_seqlen_k = batch.longest},
        packed(a.q), packed(a.k), packed(a.v), packed(a.out));
    return a;
}

// The mean over each sentence's tokens, scaled to length 1.
std::vector<float> Encoder::pool(const Batch& batch, std::span<const float> x) const {
    const auto hidden = static_cast<std::size_t>(hidden_);
    std::vector<float> embeddings(batch.size() * hidden);
    for (std::size_t sentence = 0; sentence < batch.size(); ++sentence) {
        const auto embedding = std::span(embeddings).subspan(sentence * hidden, hidden);
        for (auto token = batch.starts[sentence]; token < batch.starts[sentence + 1]; ++token)
            add(embedding, x.subspan(static_cast<std::size_t>(token) * hidden, hidden));
        double squares = 0;
        for (const float value : embedding) squares += double(value) * value;
        const auto scale = static_cast<float>(1 / std::sqrt(squares));  // the mean's divisor cancels
        for (float& value : embedding) value *= scale;
    }
    return embeddings;
}

}  // namespace minilm
