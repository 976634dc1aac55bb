// flash_backward.cpp: see flash_backward.h.
#include "baselines/cuda/flash_backward.h"

#include <limits>
#include <stdexcept>

#include "cuda/plan/tile_fit.h"

namespace flashtile::gpu_baselines {
namespace {

// The tile, with its warps placed as our own kernel places them.
KernelConfig main_config(const Shape& shape, Element element, const gpu::Tile& tile) {
    KernelConfig c = config_of(shape, element);
    c.kernel = Kernel::backward_sm80;
    c.lse = false;
    // Whether it fits a GPU is asked when it is loaded.
    gpu::DeviceFacts any;
    any.shared_memory_per_block = any.shared_memory_per_multiprocessor = std::numeric_limits<int>::max() / 4;
    const auto launch = gpu::with_tile(c, tile, any);
    if (!launch) throw std::logic_error("the warps of a baseline's tile cannot share its results");
    return launch->config;
}

KernelConfig beside(const KernelConfig& main, Kernel kernel) {
    KernelConfig c = main;
    c.kernel = kernel;
    c.band = false;
    c.blocks_per_sm = 1;
    return c;
}

}  // namespace

BackwardTexts general_backward_texts(const Shape& shape, Element element, const gpu::Tile& tile) {
    const KernelConfig c = main_config(shape, element, tile);
    return {text_of(beside(c, Kernel::backward_prepare)), text_of(c), text_of(beside(c, Kernel::backward_finish))};
}

BackwardTexts flash_attention_1_backward_texts(const Shape& shape, Element element, WorkPartition ways,
                                               const gpu::Tile& tile) {
    KernelConfig c = main_config(shape, element, tile);
    if (!ways.split_queries) c.warps_s = 1, c.warps_dkv = c.warps;
    const auto text = [&](const KernelConfig& config, const char* function, int shared_memory) {
        return KernelText{.config = config,
                          .file = "baselines/cuda/kernels/flash_attention_1_backward.h",
                          .function = std::string(function) + "<config, " + to_string(ways) + ">",
                          .params = "KernelParams",
                          .shared_memory = shared_memory};
    };
    return {text(beside(c, Kernel::backward_prepare), "flash_attention_1_prepare", 0),
            text(c, "flash_attention_1_backward", backward_shared_bytes(c, ways)),
            text_of(beside(c, Kernel::backward_finish))};
}

FlashBackward::FlashBackward(const Shape& s, const BackwardTexts& texts, int ordinal)
    : heads_(s.heads),
      query_blocks_(blocks_of(s.seqlen_q, texts.main.config.Br) * s.heads * s.batch),
      units_(s.seqlen_q * s.batch / texts.main.config.Br + s.batch),
      unit_rows_(texts.main.config.Br),
      prepare_(texts.prepare, ordinal),
      main_(texts.main, ordinal),
      finish_(texts.finish, ordinal) {
    const auto rows = static_cast<std::size_t>(heads_ * units_ * unit_rows_);
    for (gpu_resources::Buffer* buffer : {&lse_, &natural_lse_, &D_})
        *buffer = gpu_resources::Buffer(rows * sizeof(float), ordinal);
    const KernelConfig& c = main_.config();
    dq_ = gpu_resources::Buffer(rows * static_cast<std::size_t>(padded(c, c.head_dim)) * sizeof(float), ordinal);
    turn_ = gpu_resources::Buffer(static_cast<std::size_t>(heads_ * units_ * kTurnsOfUnit) * sizeof(unsigned), ordinal);
}

std::size_t FlashBackward::extra_bytes() const {
    return lse_.size() + natural_lse_.size() + D_.size() + dq_.size() + turn_.size();
}

void FlashBackward::launch(const KernelParams& of_problem, std::int64_t main_blocks,
                           const gpu_resources::Stream& stream) const {
    KernelParams p = of_problem;
    p.unit_rows = unit_rows_;
    p.units = units_;
    p.ws_lse = static_cast<float*>(lse_.data());
    p.ws_lse_natural = static_cast<float*>(natural_lse_.data());
    p.ws_D = static_cast<float*>(D_.data());
    p.ws_dq = static_cast<float*>(dq_.data());
    p.ws_turn = static_cast<unsigned*>(turn_.data());
    prepare_.launch(query_blocks_, &p, stream);
    main_.launch(main_blocks, &p, stream);
    finish_.launch(query_blocks_, &p, stream);
}

}  // namespace flashtile::gpu_baselines
