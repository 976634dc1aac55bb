// flashtile_method.cpp: flashtile itself, through its public C++ interface.
#include <vector>

#include "bench/method.h"

namespace flashtile::cli::bench {
namespace {

class Flashtile final : public LocalMethod {
public:
    explicit Flashtile(flashtile::isa isa) : isa_(isa) {}

    std::string name() const override { return "flashtile"; }

    std::string isa(const Point& point) const override {
        if (isa_ != flashtile::isa::automatic) return isa_name(isa_);
        return flashtile_isa_name(flashtile_isa_chosen(static_cast<flashtile_dtype>(point.dtype)));
    }

    std::string why_not(const Point&) const override { return ""; }

    void prepare(const Point& point, const Inputs& inputs) override {
        point_ = point;
        inputs_ = &inputs;
        out_ = Numbers(point.dtype, point.q_size());
        lse_ = Numbers(flashtile::fp32, point.batch * point.heads * point.seqlen);
        if (point.pass == Pass::forward) return;
        dq_ = Numbers(point.dtype, point.q_size());
        dk_ = Numbers(point.dtype, point.kv_size());
        dv_ = Numbers(point.dtype, point.kv_size());
        if (point.pass == Pass::backward) forward();
    }

    Results results() override {
        Results r;
        r.out = out_.as_floats();
        if (point_.pass == Pass::forward) return r;
        r.dq = dq_.as_floats();
        r.dk = dk_.as_floats();
        r.dv = dv_.as_floats();
        return r;
    }

    void release() override {
        for (auto* numbers : {&out_, &lse_, &dq_, &dk_, &dv_}) *numbers = Numbers();
    }

private:
    flashtile::options options() const { return {.causal = point_.causal, .threads = point_.threads, .isa = isa_}; }
    flashtile::tensor query_view(const Numbers& n) const {
        return flashtile::view(n.data(), n.dtype(), {point_.batch, point_.seqlen, point_.heads, point_.head_dim});
    }
    flashtile::tensor key_view(const Numbers& n) const {
        return flashtile::view(n.data(), n.dtype(), {point_.batch, point_.seqlen, point_.kv_heads, point_.head_dim});
    }
    flashtile::tensor lse_view() const {
        return flashtile::view(lse_.data(), flashtile::fp32, {point_.batch, point_.heads, point_.seqlen});
    }
    void forward() override {
        flashtile::forward(options(), query_view(inputs_->q), key_view(inputs_->k), key_view(inputs_->v),
                           query_view(out_), lse_view());
    }
    void backward() override {
        flashtile::backward(options(), query_view(inputs_->q), key_view(inputs_->k), key_view(inputs_->v),
                            query_view(out_), lse_view(), query_view(inputs_->dout), query_view(dq_), key_view(dk_),
                            key_view(dv_));
    }

    flashtile::isa isa_;
    const Inputs* inputs_ = nullptr;
    Numbers out_, lse_, dq_, dk_, dv_;
};

}  // namespace

std::unique_ptr<Method> make_flashtile(flashtile::isa isa) {
    return std::make_unique<Flashtile>(isa);
}

}  // namespace flashtile::cli::bench
