// flash_attention_1.cpp: FlashAttention on a GPU, and our own general kernels, at the same tiles.
#include <string>
#include <utility>

#include "baselines/cuda/attention.h"
#include "baselines/cuda/kernel_texts.h"
#include "baselines/cuda/shape.h"

namespace flashtile::gpu_baselines {
namespace {

std::string text(const WorkPartition& ways) {
    const auto word = [](bool on) { return on ? "true" : "false"; };
    return std::string("flashtile::WorkPartition{") + word(ways.deferred) + ", " + word(ways.over_sequence) + ", " +
           word(ways.split_queries) + "}";
}

KernelText text_of_forward(const KernelConfig& config, const WorkPartition& ways) {
    return {.config = config,
            .file = "baselines/cuda/kernels/flash_attention_1_forward.h",
            .function = "flash_attention_1_forward<config, " + text(ways) + ">",
            .params = "KernelParams",
            .shared_memory = forward_shared_bytes(config, ways)};
}

KernelConfig with_tile(const Shape& shape, Element element, const gpu::Tile& tile) {
    KernelConfig c = config_of(shape, element);
    set_tile(c, tile);
    return c;
}

class FlashAttention1 final : public Attention {
public:
    FlashAttention1(const Shape& shape, Element element, const WorkPartition& ways, const gpu::Tile& tile, int ordinal)
        : shape_(shape),
          ways_(ways),
          config_(with_tile(shape, element, tile)),
          forward_(text_of_forward(config_, ways), ordinal) {
        const std::int64_t heads = shape.batch * shape.heads;
        if (!ways.over_sequence)
            o_ = gpu_resources::Buffer(static_cast<std::size_t>(heads * blocks_of(shape.seqlen_q, tile.Br) * tile.Br *
                                                                padded(config_, config_.head_dim) * 4),
                                       ordinal);
        if (!ways.over_sequence || !ways.deferred)
            ml_ = gpu_resources::Buffer(static_cast<std::size_t>(heads * shape.seqlen_q * 8), ordinal);
    }

    std::size_t extra_bytes() const override {
        const auto lse = static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.seqlen_q * 4);
        return o_.size() + ml_.size() + lse;
    }

    void forward(const Operands& operands, const gpu_resources::Stream& stream) override {
        KernelParams p = params_of(shape_, operands);
        p.ws_part_o = static_cast<float*>(o_.data());
        p.ws_part_ml = static_cast<float*>(ml_.data());
        const std::int64_t of_head = ways_.over_sequence ? blocks_of(shape_.seqlen_q, config_.Br) : 1;
        forward_.launch(of_head * shape_.heads * shape_.batch, &p, stream);
    }

private:
    Shape shape_;
    WorkPartition ways_;
    KernelConfig config_;
    BaselineKernel forward_;
    gpu_resources::Buffer o_, ml_;  // what is not finished: O, m and l; m and l for backward, too
};

class General final : public Attention {
public:
    General(const Shape& shape, const KernelConfig& config, int ordinal)
        : shape_(shape), config_(config), forward_(text_of(config), ordinal) {}

    std::size_t extra_bytes() const override {
        return static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.seqlen_q * 4);  // LSE
    }

    void forward(const Operands& operands, const gpu_resources::Stream& stream) override {
        const KernelParams p = params_of(shape_, operands);
        forward_.launch(blocks_of(shape_.seqlen_q, config_.Br) * shape_.heads * shape_.batch, &p, stream);
    }

private:
    Shape shape_;
    KernelConfig config_;
    BaselineKernel forward_;
};

constexpr int kMultiple = 8, kWidest = 128;

KernelConfig general_config(const Shape& shape, Element element, const gpu::Tile& tile, bool exact_maximum) {
    KernelConfig c = with_tile(shape, element, tile);
    c.lazy_rescale = !exact_maximum;
    return c;
}

}  // namespace

std::vector<KernelText> flash_attention_1_texts(const Shape& shape, Element element, WorkPartition ways,
                                                const gpu::Tile& tile) {
    return {text_of_forward(with_tile(shape, element, tile), ways)};
}

std::vector<KernelText> general_texts(const Shape& shape, Element element, const gpu::Tile& tile, bool exact_maximum) {
    return {text_of(general_config(shape, element, tile, exact_maximum))};
}

std::unique_ptr<Attention> make_flash_attention_1(const Shape& shape, Element element, WorkPartition ways,
                                                  const gpu::Tile& tile, int ordinal) {
    require(shape, element, kMultiple, kWidest);
    return std::make_unique<FlashAttention1>(shape, element, ways, tile, ordinal);
}

std::unique_ptr<Attention> make_general(const Shape& shape, Element element, const gpu::Tile& tile, bool exact_maximum,
                                        int ordinal) {
    require(shape, element, kMultiple, kWidest);
    return std::make_unique<General>(shape, general_config(shape, element, tile, exact_maximum), ordinal);
}

gpu::Tile flash_attention_1_tile(std::int64_t head_dim, WorkPartition ways, int shared_memory) {
    if (head_dim <= 64) return {64, 64, 128, 4, 2, 2, "a warp's share of O takes 64 registers in two parts"};
    const gpu::Tile wide = {128, 64, 128, 4, 2, 1, "in four parts"};
    KernelConfig c;
    c.head_dim = static_cast<int>(head_dim);
    set_tile(c, wide);
    if (forward_shared_bytes(c, ways) <= shared_memory) return wide;
    return {128, 64, 64, 4, 2, 1, "shared memory under 187 KB a block"};
}

gpu::Tile general_tile(std::int64_t head_dim) {
    const bool narrow = head_dim <= 64;
    return {narrow ? 64 : 128, 128, 64, 4, 2, 2, "that of src/cuda/tiles/sm80.h"};
}

}  // namespace flashtile::gpu_baselines
