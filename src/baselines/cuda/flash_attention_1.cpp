// flash_attention_1.cpp: FlashAttention on a GPU, and our own general kernels, at the same tiles.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "baselines/cuda/attention.h"
#include "baselines/cuda/flash_backward.h"
#include "baselines/cuda/kernel_texts.h"
#include "baselines/cuda/shape.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm80.h"

namespace flashtile::gpu_baselines {
namespace {

constexpr int kMultiple = 8, kWidest = 128;

KernelConfig forward_config(const Shape& shape, Element element, const gpu::Tile& tile) {
    KernelConfig c = config_of(shape, element);
    set_tile(c, tile);
    return c;
}

KernelText general_forward_text(const Shape& shape, Element element, const gpu::Tile& tile, bool exact_maximum) {
    KernelConfig c = forward_config(shape, element, tile);
    c.lazy_rescale = !exact_maximum;
    return text_of(c);
}

KernelText flash_attention_1_forward_text(const Shape& shape, Element element, const WorkPartition& ways,
                                          const gpu::Tile& tile) {
    const KernelConfig c = forward_config(shape, element, tile);
    return {.config = c,
            .file = "baselines/cuda/kernels/flash_attention_1_forward.h",
            .function = "flash_attention_1_forward<config, " + to_string(ways) + ">",
            .params = "KernelParams",
            .shared_memory = forward_shared_bytes(c, ways)};
}

// Queries, or heads, a thread block; likewise keys in backward.
class ByBlocks final : public Attention {
public:
    // `backward` is null for the forward pass alone.
    ByBlocks(const Shape& shape, const WorkPartition& ways, KernelText forward, const BackwardTexts* backward,
             int ordinal)
        : shape_(shape), ways_(ways), forward_(std::move(forward), ordinal) {
        const KernelConfig& c = forward_.config();
        if (!ways.over_sequence)
            o_ = gpu_resources::Buffer(
                static_cast<std::size_t>(heads() * blocks_of(shape.seqlen_q, c.Br) * c.Br * padded(c, c.head_dim) * 4),
                ordinal);
        if (!ways.over_sequence || !ways.deferred)
            ml_ = gpu_resources::Buffer(static_cast<std::size_t>(heads() * shape.seqlen_q * 8), ordinal);
        if (backward == nullptr) return;
        key_blocks_ = ways.over_sequence ? blocks_of(shape.seqlen_k, backward->main.config.Bc) : 1;
        backward_.emplace(shape, *backward, ordinal);
    }

    std::size_t extra_bytes() const override {
        const auto lse = static_cast<std::size_t>(heads() * shape_.seqlen_q * 4);
        return lse + o_.size() + ml_.size() + (backward_ ? backward_->extra_bytes() : 0);
    }

    void forward(const Operands& operands, const gpu_resources::Stream& stream) override {
        const KernelParams p = params(operands);
        const std::int64_t of_head = ways_.over_sequence ? blocks_of(shape_.seqlen_q, forward_.config().Br) : 1;
        forward_.launch(of_head * heads(), &p, stream);
    }

    void backward(const Operands& operands, const gpu_resources::Stream& stream) override {
        backward_.value().launch(params(operands), key_blocks_ * heads(), stream);
    }

private:
    std::int64_t heads() const { return shape_.batch * shape_.heads; }

    KernelParams params(const Operands& operands) const {
        KernelParams p = params_of(shape_, operands);
        p.ws_part_o = static_cast<float*>(o_.data());
        p.ws_part_ml = static_cast<float*>(ml_.data());
        return p;
    }

    Shape shape_;
    WorkPartition ways_;
    BaselineKernel forward_;
    std::int64_t key_blocks_ = 0;
    std::optional<FlashBackward> backward_;
    gpu_resources::Buffer o_, ml_;  // what is not finished: O, m and l; m and l for backward, too
};

// As far as it decides whether a tile fits.
KernelConfig config_of(Kernel kernel, std::int64_t head_dim) {
    KernelConfig c;
    c.kernel = kernel;
    c.head_dim = c.head_dim_v = static_cast<int>(head_dim);
    return c;
}

std::vector<KernelText> list_of(const KernelText& forward, const std::optional<BackwardTexts>& backward) {
    if (!backward) return {forward};
    return {forward, backward->prepare, backward->main, backward->finish};
}

}  // namespace

std::unique_ptr<Attention> make_flash_attention_1(const Shape& shape, Element element, Passes passes,
                                                  WorkPartition ways, const Tiles& tiles, int ordinal) {
    require(shape, element, kMultiple, kWidest);
    const BackwardTexts backward = flash_attention_1_backward_texts(shape, element, ways, tiles.backward);
    return std::make_unique<ByBlocks>(shape, ways, flash_attention_1_forward_text(shape, element, ways, tiles.forward),
                                      passes == Passes::both ? &backward : nullptr, ordinal);
}

std::unique_ptr<Attention> make_general(const Shape& shape, Element element, Passes passes, const Tiles& tiles,
                                        bool exact_maximum, int ordinal) {
    require(shape, element, kMultiple, kWidest);
    const BackwardTexts backward = general_backward_texts(shape, element, tiles.backward);
    return std::make_unique<ByBlocks>(shape, kAllWays,
                                      general_forward_text(shape, element, tiles.forward, exact_maximum),
                                      passes == Passes::both ? &backward : nullptr, ordinal);
}

std::vector<KernelText> flash_attention_1_texts(const Shape& shape, Element element, Passes passes, WorkPartition ways,
                                                const Tiles& tiles) {
    std::optional<BackwardTexts> backward;
    if (passes == Passes::both) backward = flash_attention_1_backward_texts(shape, element, ways, tiles.backward);
    return list_of(flash_attention_1_forward_text(shape, element, ways, tiles.forward), backward);
}

std::vector<KernelText> general_texts(const Shape& shape, Element element, Passes passes, const Tiles& tiles,
                                      bool exact_maximum) {
    std::optional<BackwardTexts> backward;
    if (passes == Passes::both) backward = general_backward_texts(shape, element, tiles.backward);
    return list_of(general_forward_text(shape, element, tiles.forward, exact_maximum), backward);
}

Tiles general_tiles(std::int64_t head_dim, const gpu::DeviceFacts& device) {
    const auto tile_of = [&](Kernel kernel, std::span<const gpu::Tile> table) {
        const auto fits = [&](const gpu::Tile& tile) {
            return tile.widest >= head_dim && gpu::with_tile(config_of(kernel, head_dim), tile, device).has_value();
        };
        return *std::ranges::find_if(table, fits);
    };
    return {tile_of(Kernel::forward_sm80, gpu::sm80::kForward), tile_of(Kernel::backward_sm80, gpu::sm80::kBackward)};
}

TileChoices flash_attention_1_tiles(std::int64_t head_dim, WorkPartition ways, const gpu::DeviceFacts& device) {
    const bool narrow = head_dim <= 64;
    TileChoices choices;
    for (const gpu::Tile& tile : {gpu::Tile{128, 64, 128, 4, 2, narrow ? 2 : 1, "a warp's share of O in a few parts"},
                                  gpu::Tile{128, 64, 64, 4, 2, 2, "more thread blocks a multiprocessor"}}) {
        KernelConfig c = config_of(Kernel::forward_sm80, head_dim);
        set_tile(c, tile);
        if (forward_shared_bytes(c, ways) <= device.shared_memory_per_block) choices.forward.push_back(tile);
    }
    choices.backward = {{128, 64, 64, 4, 2, narrow ? 2 : 1, "dK, dV and a share of dQ just fit a warp's registers"}};
    if (!ways.split_queries) return choices;
    // wherever no side of the other switches spills
    if (narrow) choices.forward.push_back(general_tiles(head_dim, device).forward);
    const gpu::Tile wide = {128, 64, 128, 8, 2, 1, "as our own kernel's for d = 128"};
    if (gpu::with_tile(config_of(Kernel::backward_sm80, head_dim), wide, device)) choices.backward.push_back(wide);
    return choices;
}

}  // namespace flashtile::gpu_baselines
