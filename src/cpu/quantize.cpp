// quantize.cpp: see quantize.h. A block with a scale of its own is read once. Where a scale is for more than a block,
// the blocks are read once for their largest magnitudes and once more to be quantised.
#include "cpu/quantize.h"

#include <algorithm>
#include <vector>

#include "cpu/threads.h"
#include "shared/e4m3.h"

namespace flashtile::cpu {
namespace {

// All blocks of all sequences, and the scale of each head of one.
class Blocks {
public:
    Blocks(const QuantizeProblem& p, const QuantizeOperands& x)
        : p_(p), x_(x), rows_(p.scale_block != 0 ? p.scale_block : kQuantizeRows) {
        std::int64_t blocks = 0;
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t start = p.packed ? x.cu_seqlens[b] : 0;
            const std::int64_t length = p.packed ? x.cu_seqlens[b + 1] - start : p.seqlen;
            if (!p.packed) blocks = 0;
            for (std::int64_t first = 0; first < length; first += rows_)
                list_.push_back({.b = b,
                                 .first = first,
                                 .end = std::min(first + rows_, length),
                                 .outer = p.packed ? 0 : b,
                                 .at = start + first,
                                 .number = blocks++});
        }
    }

    std::int64_t rows() const { return rows_; }  // of a block, at most
    std::int64_t count() const { return static_cast<std::int64_t>(list_.size()) * p_.heads; }

    QuantizeBlock block(std::int64_t n) const {
        const Place& of = list_[static_cast<std::size_t>(n / p_.heads)];
        return {of.b, n % p_.heads, of.first, of.end, of.outer, of.at};
    }
    float& scale(std::int64_t n) const {
        const Place& of = list_[static_cast<std::size_t>(n / p_.heads)];
        const std::int64_t h = n % p_.heads / p_.group();
        return x_.scale
            .data[of.b * x_.scale.stride_batch + h * x_.scale.stride_head + of.number * x_.scale.stride_block];
    }
    // Every scale that there is, of sequences without rows too.
    template <class Change>
    void change_all(Change change) const {
        const std::int64_t batches = p_.scale == ScaleKind::tensor      ? 1
                                     : p_.packed && p_.scale_block != 0 ? 1
                                                                        : p_.batch;
        for (std::int64_t b = 0; b < batches; ++b)
            for (std::int64_t h = 0; h < p_.scale_heads; ++h)
                for (std::int64_t n = 0; n < x_.scale.blocks; ++n) {
                    float& scale =
                        x_.scale.data[b * x_.scale.stride_batch + h * x_.scale.stride_head + n * x_.scale.stride_block];
                    scale = change(scale);
                }
    }

private:
    struct Place {
        std::int64_t b, first, end, outer, at, number;
    };
    const QuantizeProblem& p_;
    const QuantizeOperands& x_;
    std::int64_t rows_;
    std::vector<Place> list_;
};

}  // namespace

void quantize(const Kernels& kernels, const QuantizeProblem& p, const QuantizeOperands& x, const Execution& execution,
              std::int32_t threads) {
    const Blocks blocks(p, x);
    const std::int64_t elements = blocks.rows() * p.head_dim;
    std::vector<float> scratch(static_cast<std::size_t>(elements * threads));
    const auto for_each = [&](auto run) {
        run_tasks(execution, threads, blocks.count(), [&](std::int64_t n, std::int32_t slot) {
            run(n, blocks.block(n), scratch.data() + slot * elements);
        });
    };
    if (!p.scale_given) blocks.change_all([](float) { return 1.0f; });
    if (!p.scale_given && p.scale != ScaleKind::block) {
        std::vector<float> largest(static_cast<std::size_t>(blocks.count()));
        for_each([&](std::int64_t n, const QuantizeBlock& block, float* rows) {
            largest[static_cast<std::size_t>(n)] = kernels.quantize_prepare(p, x, block, rows);
        });
        blocks.change_all([](float) { return 0.0f; });  // the scales hold magnitudes for now
        for (std::int64_t n = 0; n < blocks.count(); ++n)
            blocks.scale(n) = std::max(blocks.scale(n), largest[static_cast<std::size_t>(n)]);
        blocks.change_all([](float magnitude) { return e4m3_scale(magnitude); });
    }
    for_each([&](std::int64_t n, const QuantizeBlock& block, float* rows) {
        const float magnitude = kernels.quantize_prepare(p, x, block, rows);
        if (!p.scale_given && p.scale == ScaleKind::block) blocks.scale(n) = e4m3_scale(magnitude);
        kernels.quantize_store(p, x, block, rows, blocks.scale(n));
    });
}

void dequantize(const Kernels& kernels, const QuantizeProblem& p, const QuantizeOperands& x, const Execution& execution,
                std::int32_t threads) {
    const Blocks blocks(p, x);
    run_tasks(execution, threads, blocks.count(),
              [&](std::int64_t n, std::int32_t) { kernels.dequantize(p, x, blocks.block(n), blocks.scale(n)); });
}

}  // namespace flashtile::cpu
