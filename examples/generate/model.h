// model.h: Gemma 3's text model: tokens of a step in, the logits of those that were asked for out. The weights stay in
// the file that is mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <span>
#include <string>
#include <vector>

#include "attention.h"
#include "config.h"
#include "io/safetensors.h"
#include "linear.h"
#include "norm.h"
#include "step.h"
#include "threads.h"

namespace gemma {

class Model {
public:
    Model(const flashtile::io::SafetensorsFile& file, Threads& threads);

    const Config& config() const { return config_; }
    flashtile::dtype dtype() const;  // of the weights

    // (step.wanted.size(), vocabulary), in the order of step.wanted.
    std::vector<float> logits(const Step& step, Attention& attention) const;

private:
    struct Layer {
        RmsNorm before_attention, query, key, after_attention;
        Linear qkv, attention_output;
        RmsNorm before_mlp, after_mlp;
        Linear gate_and_up, down;
    };

    const flashtile::io::Array& weight(const std::string& name, const std::vector<std::int64_t>& shape) const;
    Matrix matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs) const;
    RmsNorm norm(const std::string& name, std::int64_t size) const;

    std::vector<float> embed(std::span<const std::int32_t> tokens) const;
    void attend(std::int64_t layer, const Step& step, Attention& attention, std::span<float> x) const;
    void feed_forward(const Layer& layer, std::span<float> x) const;

    const flashtile::io::SafetensorsFile& file_;
    Threads& threads_;
    Config config_;
    flashtile::io::DType dtype_;
    Matrix words_;  // (vocabulary, hidden): embeddings, and the weights of the logits
    float embedding_scale_;
    std::vector<Layer> layers_;
    RmsNorm last_;
};

}  // namespace gemma
