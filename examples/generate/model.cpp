#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bf16.h"
#include "kernels.h"

namespace gemma {
namespace {

namespace io = flashtile::io;

const std::string embeddings_name = "model.embed_tokens";

// Value n of an fp32 or bf16 array, which need not be aligned.
float value(io::DType dtype, const void* data, std::size_t n) {
    const auto read = [&]<class T>(T number) {
        std::memcpy(&number, static_cast<const std::byte*>(data) + n * sizeof number, sizeof number);
        return number;
    };
    return dtype == io::DType::fp32 ? read(float()) : from_bf16(read(std::uint16_t()));
}

// Gemma was trained with the factor in the weights' type: in bf16 25.25 stands for the square root of 640.
float embedding_scale(io::DType dtype, std::int64_t hidden) {
    const auto exact = static_cast<float>(std::sqrt(static_cast<double>(hidden)));
    if (dtype == io::DType::fp32) return exact;
    return from_bf16(to_bf16(exact));
}

const std::string& config_text(const io::SafetensorsFile& file) {
    const auto found = file.metadata().find("config");
    if (found == file.metadata().end())
        throw io::FileError("model: its metadata has no \"config\"; convert.py writes files that have one");
    return found->second;
}

// All weights have one type.
io::DType dtype_of(const io::SafetensorsFile& file) {
    const auto dtype = file.at(embeddings_name + ".weight").dtype;
    if (dtype != io::DType::fp32 && dtype != io::DType::bf16)
        throw io::FileError("model: its weights are " + std::string(io::name(dtype)) + ", allowed are fp32 and bf16");
    return dtype;
}

// Row `n` of rows that are `width` long, or `count` rows from there on.
template <class Values>
auto rows_of(Values&& values, std::size_t width, std::size_t n, std::size_t count = 1) {
    return std::span(values).subspan(n * width, count * width);
}

// Calls task(first, count) for pieces of `rows`. A few rows are less work than waking another thread.
template <class Task>
void for_rows(Threads& threads, std::size_t rows, const Task& task) {
    constexpr std::size_t piece = 16;
    threads.run(static_cast<std::int64_t>((rows + piece - 1) / piece), [&](std::int64_t n) {
        const auto first = static_cast<std::size_t>(n) * piece;
        task(first, std::min(piece, rows - first));
    });
}

void add(std::span<float> x, std::span<const float> y) {
    for (std::size_t n = 0; n < x.size(); ++n) x[n] += y[n];
}

}  // namespace

Model::Model(const io::SafetensorsFile& file, Threads& threads)
    : file_(file),
      threads_(threads),
      config_(parse_config(config_text(file))),
      dtype_(dtype_of(file)),
      words_(matrix(embeddings_name, config_.vocabulary, config_.hidden)),
      embedding_scale_(embedding_scale(dtype_, config_.hidden)),
      last_(norm("model.norm", config_.hidden)) {
    const auto hidden = config_.hidden, wide = config_.intermediate, d = config_.head_dim;
    for (std::int64_t number = 0; number < config_.layers(); ++number) {
        const auto name = "model.layers." + std::to_string(number) + ".";
        layers_.push_back({
            .before_attention = norm(name + "input_layernorm", hidden),
            .query = norm(name + "self_attn.q_norm", d),
            .key = norm(name + "self_attn.k_norm", d),
            .after_attention = norm(name + "post_attention_layernorm", hidden),
            .qkv = {matrix(name + "self_attn.q_proj", config_.heads * d, hidden),
                    matrix(name + "self_attn.k_proj", config_.kv_heads * d, hidden),
                    matrix(name + "self_attn.v_proj", config_.kv_heads * d, hidden)},
            .attention_output = {matrix(name + "self_attn.o_proj", hidden, config_.heads * d)},
            .before_mlp = norm(name + "pre_feedforward_layernorm", hidden),
            .after_mlp = norm(name + "post_feedforward_layernorm", hidden),
            .gate_and_up = {matrix(name + "mlp.gate_proj", wide, hidden), matrix(name + "mlp.up_proj", wide, hidden)},
            .down = {matrix(name + "mlp.down_proj", hidden, wide)},
        });
    }
}

flashtile::dtype Model::dtype() const {
    return dtype_ == io::DType::bf16 ? flashtile::bf16 : flashtile::fp32;
}

const io::Array& Model::weight(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto& array = file_.at(name + ".weight");
    if (array.dtype != dtype_ || array.shape != shape)
        throw io::FileError("model: " + name + " is " + io::name(array.dtype) + " " + io::to_string(array.shape) +
                            ", expected " + io::name(dtype_) + " " + io::to_string(shape));
    return array;
}

Matrix Model::matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs) const {
    const auto& array = weight(name, {outputs, inputs});
    return {array.data, static_cast<std::size_t>(outputs), static_cast<std::size_t>(inputs)};
}

RmsNorm Model::norm(const std::string& name, std::int64_t size) const {
    const auto& array = weight(name, {size});
    std::vector<float> scales;
    for (std::size_t n = 0; n < array.elements(); ++n) scales.push_back(1 + value(dtype_, array.data, n));
    return {std::move(scales), config_.epsilon};
}

std::vector<float> Model::logits(const Step& step, Attention& attention) const {
    const auto hidden = words_.inputs;
    auto x = embed(step.tokens);
    for (std::int64_t layer = 0; layer < config_.layers(); ++layer) {
        attend(layer, step, attention, x);
        feed_forward(layers_[static_cast<std::size_t>(layer)], x);
    }
    std::vector<float> wanted(step.wanted.size() * hidden);
    for (std::size_t n = 0; n < step.wanted.size(); ++n)
        last_(rows_of(x, hidden, static_cast<std::size_t>(step.wanted[n])), rows_of(wanted, hidden, n));
    std::vector<float> logits(step.wanted.size() * words_.outputs);
    multiply(threads_, dtype_, {words_}, wanted, logits);
    return logits;
}

std::vector<float> Model::embed(std::span<const std::int32_t> tokens) const {
    const auto hidden = words_.inputs;
    std::vector<float> x;
    x.reserve(tokens.size() * hidden);
    for (const auto token : tokens)
        for (std::size_t n = 0; n < hidden; ++n)
            x.push_back(embedding_scale_ * value(dtype_, words_.data, static_cast<std::size_t>(token) * hidden + n));
    return x;
}

// x += after_attention(output(attention(qkv(before_attention(x)))))
void Model::attend(std::int64_t number, const Step& step, Attention& attention, std::span<float> x) const {
    const auto& layer = layers_[static_cast<std::size_t>(number)];
    const auto tokens = step.tokens.size(), hidden = words_.inputs, width = outputs_of(layer.qkv);
    const auto q_width = layer.qkv[0].outputs, k_width = layer.qkv[1].outputs;

    std::vector<float> y(x.size()), qkv(tokens * width), out(tokens * q_width);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        layer.before_attention(rows_of(x, hidden, first, count), rows_of(y, hidden, first, count));
    });
    multiply(threads_, dtype_, layer.qkv, y, qkv);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        for (auto row = first; row < first + count; ++row) {
            const auto q = rows_of(qkv, width, row).first(q_width);
            const auto k = rows_of(qkv, width, row).subspan(q_width, k_width);
            layer.query(q, q);
            layer.key(k, k);
        }
    });
    attention(number, step, qkv, out);
    multiply(threads_, dtype_, layer.attention_output, out, y);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        const auto rows = rows_of(y, hidden, first, count);
        layer.after_attention(rows, rows);
        add(rows_of(x, hidden, first, count), rows);
    });
}

// x += after_mlp(down(gelu(gate(before_mlp(x))) * up(before_mlp(x))))
void Model::feed_forward(const Layer& layer, std::span<float> x) const {
    const auto hidden = words_.inputs, wide = layer.down.front().inputs, tokens = x.size() / hidden;

    std::vector<float> y(x.size()), gate_and_up(tokens * 2 * wide), product(tokens * wide);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        layer.before_mlp(rows_of(x, hidden, first, count), rows_of(y, hidden, first, count));
    });
    multiply(threads_, dtype_, layer.gate_and_up, y, gate_and_up);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        for (auto row = first; row < first + count; ++row) {
            const auto* const gate = &gate_and_up[row * 2 * wide];
            kernels().geglu(gate, gate + wide, &product[row * wide], wide);
        }
    });
    multiply(threads_, dtype_, layer.down, product, y);
    for_rows(threads_, tokens, [&](std::size_t first, std::size_t count) {
        const auto rows = rows_of(y, hidden, first, count);
        layer.after_mlp(rows, rows);
        add(rows_of(x, hidden, first, count), rows);
    });
}

}  // namespace gemma
