// standard_attention.cpp: standard attention on a GPU (FlashAttention paper, Algorithms 0 and 3), from memory to
// memory.
#include <optional>
#include <string>

#include "baselines/cuda/attention.h"
#include "baselines/cuda/kernel_texts.h"
#include "baselines/cuda/kernels/standard_params.h"
#include "baselines/cuda/shape.h"

namespace flashtile::gpu_baselines {
namespace {

constexpr int kMultiple = kProductDepth, kWidest = kScoreColumns;

// A tile of a result with so many columns.
KernelConfig product_config(const Shape& shape, Element element, std::int64_t columns) {
    KernelConfig c = config_of(shape, element);
    c.Br = kScoreColumns;
    c.Bc = static_cast<int>(columns);
    c.warps = 8;
    c.warps_s = c.Bc % 64 == 0 ? 4 : 8;
    c.stages = 3;
    c.blocks_per_sm = 2;
    return c;
}

KernelText product_text(const KernelConfig& config, const ProductForm& form) {
    const auto word = [](bool on) { return on ? "true" : "false"; };
    return {.config = config,
            .file = "baselines/cuda/kernels/standard_product.h",
            .function = std::string("standard_product<config, flashtile::ProductForm{") + word(form.a_transposed) +
                        ", " + word(form.b_transposed) + "}>",
            .params = "StandardParams",
            .shared_memory = product_shared_bytes(config, form)};
}

KernelText row_text(const Shape& shape, Element element, const char* name) {
    KernelConfig c = config_of(shape, element);
    c.warps = 8;
    return {.config = c,
            .file = "baselines/cuda/kernels/standard_softmax.h",
            .function = std::string(name) + "<config>",
            .params = "StandardParams"};
}

// Results as wide as a row of scores, S = Q K^T and dP = dO V^T; and as wide as a head, from rows of scores, O = P V
// and dQ = dS K, or from columns of them, dV = P^T dO and dK = dS^T Q.
KernelText to_scores(const Shape& shape, Element element) {
    return product_text(product_config(shape, element, kScoreColumns), {});
}
KernelText times_rows(const Shape& shape, Element element) {
    return product_text(product_config(shape, element, shape.head_dim), {.b_transposed = true});
}

KernelText times_columns(const Shape& shape, Element element) {
    return product_text(product_config(shape, element, shape.head_dim), {.a_transposed = true, .b_transposed = true});
}

class Standard final : public Attention {
public:
    Standard(const Shape& shape, Element element, Passes passes, int ordinal)
        : shape_(shape),
          score_columns_(blocks_of(shape.seqlen_k, kScoreColumns) * kScoreColumns),
          to_scores_(to_scores(shape, element), ordinal),
          times_rows_(times_rows(shape, element), ordinal),
          softmax_(row_text(shape, element, "standard_softmax"), ordinal),
          scores_(score_bytes(), ordinal) {
        if (passes == Passes::forward) return;
        times_columns_.emplace(times_columns(shape, element), ordinal);
        softmax_backward_.emplace(row_text(shape, element, "standard_softmax_backward"), ordinal);
        gradients_ = gpu_resources::Buffer(score_bytes(), ordinal);
    }

    std::size_t extra_bytes() const override { return scores_.size() + gradients_.size(); }

    void forward(const Operands& x, const gpu_resources::Stream& stream) override {
        const DeviceTensor q = tensor_of(shape_, x.q, shape_.seqlen_q), k = tensor_of(shape_, x.k, shape_.seqlen_k),
                           v = tensor_of(shape_, x.v, shape_.seqlen_k), out = tensor_of(shape_, x.out, shape_.seqlen_q),
                           s = score_tensor(scores_);
        product(to_scores_, {q, k, s}, {shape_.seqlen_q, shape_.seqlen_k, shape_.head_dim}, shape_.scale, stream);
        rows(softmax_, {s, s, s}, stream);
        product(times_rows_, {s, v, out}, {shape_.seqlen_q, shape_.head_dim, shape_.seqlen_k}, 1.0f, stream);
    }

    void backward(const Operands& x, const gpu_resources::Stream& stream) override {
        const std::int64_t n = shape_.seqlen_q, keys = shape_.seqlen_k, d = shape_.head_dim;
        const DeviceTensor q = tensor_of(shape_, x.q, n), k = tensor_of(shape_, x.k, keys),
                           v = tensor_of(shape_, x.v, keys), dout = tensor_of(shape_, x.dout, n),
                           dq = tensor_of(shape_, x.dq, n), dk = tensor_of(shape_, x.dk, keys),
                           dv = tensor_of(shape_, x.dv, keys), p = score_tensor(scores_), ds = score_tensor(gradients_);
        product(*times_columns_, {p, dout, dv}, {keys, d, n}, 1.0f, stream);
        product(to_scores_, {dout, v, ds}, {n, keys, d}, 1.0f, stream);  // dP, in whose place dS comes
        rows(*softmax_backward_, {p, p, ds}, stream);
        product(times_rows_, {ds, k, dq}, {n, d, keys}, shape_.scale, stream);
        product(*times_columns_, {ds, q, dk}, {keys, d, n}, shape_.scale, stream);
    }

private:
    struct Factors {
        DeviceTensor a, b, c;
    };
    struct Sizes {
        std::int64_t rows, columns, depth;
    };

    std::int64_t heads() const { return shape_.batch * shape_.heads; }

    std::size_t score_bytes() const { return static_cast<std::size_t>(heads() * shape_.seqlen_q * score_columns_ * 2); }

    // (batch, heads, seqlen_q, score_columns_)
    DeviceTensor score_tensor(const gpu_resources::Buffer& buffer) const {
        const std::int64_t head = shape_.seqlen_q * score_columns_;
        return {buffer.data(), shape_.heads * head, score_columns_, head, 1};
    }

    StandardParams params_of(const Factors& f, const Sizes& sizes, float alpha) const {
        return {.a = f.a,
                .b = f.b,
                .c = f.c,
                .heads = static_cast<int>(shape_.heads),
                .all_heads = heads(),
                .rows = static_cast<int>(sizes.rows),
                .columns = static_cast<int>(sizes.columns),
                .depth = static_cast<int>(sizes.depth),
                .alpha = alpha,
                .band = {shape_.seqlen_k - shape_.seqlen_q, -1, shape_.causal ? 0 : -1}};
    }

    void product(const BaselineKernel& kernel, const Factors& factors, const Sizes& sizes, float alpha,
                 const gpu_resources::Stream& stream) const {
        const KernelConfig& c = kernel.config();
        const StandardParams p = params_of(factors, sizes, alpha);
        kernel.launch(blocks_of(sizes.rows, c.Br) * blocks_of(sizes.columns, c.Bc) * heads(), &p, stream);
    }
    void rows(const BaselineKernel& kernel, const Factors& factors, const gpu_resources::Stream& stream) const {
        const StandardParams p = params_of(factors, {shape_.seqlen_q, shape_.seqlen_k, 0}, 1.0f);
        kernel.launch(blocks_of(heads() * shape_.seqlen_q, kernel.config().warps), &p, stream);
    }

    Shape shape_;
    std::int64_t score_columns_;
    BaselineKernel to_scores_, times_rows_, softmax_;
    std::optional<BaselineKernel> times_columns_, softmax_backward_;
    gpu_resources::Buffer scores_;     // S, in whose place P comes
    gpu_resources::Buffer gradients_;  // dP and dS, likewise
};

}  // namespace

std::vector<KernelText> standard_texts(const Shape& shape, Element element, Passes passes) {
    std::vector<KernelText> list = {to_scores(shape, element), times_rows(shape, element),
                                    row_text(shape, element, "standard_softmax")};
    if (passes == Passes::forward) return list;
    list.push_back(times_columns(shape, element));
    list.push_back(row_text(shape, element, "standard_softmax_backward"));
    return list;
}

std::unique_ptr<Attention> make_standard(const Shape& shape, Element element, Passes passes, int ordinal) {
    require(shape, element, kMultiple, kWidest);
    return std::make_unique<Standard>(shape, element, passes, ordinal);
}

}  // namespace flashtile::gpu_baselines
