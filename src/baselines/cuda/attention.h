// attention.h: what the papers compare with, on a GPU: standard attention and FlashAttention, and our own general
// kernels beside them at a tile of one's choice. For `bench` and for readers, never for the library.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "baselines/cuda/kernels/work_partition.h"
#include "baselines/standard_attention.h"
#include "cuda/tiles/tile.h"
#include "gpu_resources/gpu_resources.h"

namespace flashtile::gpu_baselines {

using baselines::Shape;

// On the GPU, contiguous: q, k, v, out and gradients (batch, seqlen, heads, head_dim), lse (batch, heads, seqlen_q) in
// fp32, which standard attention leaves alone.
struct Operands {
    const void *q = nullptr, *k = nullptr, *v = nullptr;
    void* out = nullptr;
    void* lse = nullptr;
    const void* dout = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

class Attention {
public:
    Attention() = default;
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;
    virtual ~Attention() = default;

    // GPU memory that it takes beside inputs and outputs; what backward reads of forward counts, such as LSE.
    virtual std::size_t extra_bytes() const = 0;

    // Both are asynchronous. Backward follows a forward pass of the same operands.
    virtual void forward(const Operands& operands, const gpu_resources::Stream& stream) = 0;
    virtual void backward(const Operands& operands, const gpu_resources::Stream& stream) = 0;
};

// What an Attention is made for. Only with `both` may backward be called.
enum class Passes { forward, both };

struct Tiles {
    gpu::Tile forward, backward;
};

// Each throws UNSUPPORTED, saying why, for a shape that it does not take. All take fp16 and bf16, as many key heads as
// query heads, and a scale above 0. They compile, load and allocate here.

// In three steps, each from memory to memory: S = Q K^T, P = softmax(S), O = P V; and backward as many. Head dimensions
// are multiples of 32 up to 128.
std::unique_ptr<Attention> make_standard(const Shape& shape, Element element, Passes passes, int ordinal = 0);

// FlashAttention, with each of what FlashAttention-2 changed where `ways` says so. Head dimensions are multiples of 8
// up to 128.
std::unique_ptr<Attention> make_flash_attention_1(const Shape& shape, Element element, Passes passes,
                                                  WorkPartition ways, const Tiles& tiles, int ordinal = 0);

// Our own kernels of mma.sync (forward_sm80, backward_sm80) with these tiles. `exact_maximum`: O is rescaled whenever a
// maximum grows, as in the paper.
std::unique_ptr<Attention> make_general(const Shape& shape, Element element, Passes passes, const Tiles& tiles,
                                        bool exact_maximum, int ordinal = 0);

// The tiles of our own general kernels for a head dimension on a GPU.
Tiles general_tiles(std::int64_t head_dim, const gpu::DeviceFacts& device);

// Those from which FlashAttention may choose, so that nobody loses for a tile alone: some on which warps can split the
// keys, and, where they split queries, larger ones. The switches for sections 3.1 and 3.2 change nothing here. There is
// one at least.
struct TileChoices {
    std::vector<gpu::Tile> forward, backward;
};
TileChoices flash_attention_1_tiles(std::int64_t head_dim, WorkPartition ways, const gpu::DeviceFacts& device);

}  // namespace flashtile::gpu_baselines
