// flashtile_method.cpp: flashtile itself, through its public C++ interface.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "bench/method.h"

namespace flashtile::cli::bench {
namespace {

class Flashtile final : public LocalMethod {
public:
    Flashtile(flashtile::isa isa, const BlockPattern* seen) : isa_(isa), seen_(seen) {}

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
        lse_ = Numbers(flashtile::fp32, point.batch * point.heads * point.rows_q());
        if (point.page_size != 0) lay_out_pages();
        if (!has_backward(point.pass)) return;
        dq_ = Numbers(point.dtype, point.q_size());
        dk_ = Numbers(point.dtype, point.kv_size());
        dv_ = Numbers(point.dtype, point.kv_size());
        if (point.pass == Pass::backward) forward();
    }

    Results results() override {
        Results r;
        r.out = out_.as_floats();
        if (!has_backward(point_.pass)) return r;
        r.dq = dq_.as_floats();
        r.dk = dk_.as_floats();
        r.dv = dv_.as_floats();
        return r;
    }

    void release() override {
        for (auto* numbers : {&out_, &lse_, &dq_, &dk_, &dv_, &k_pages_, &v_pages_}) *numbers = Numbers();
    }

private:
    // The pages of all sequences in a random order.
    void lay_out_pages() {
        const std::int64_t pages = point_.seqlen / point_.page_size;
        table_.resize(static_cast<std::size_t>(point_.batch * pages));
        std::iota(table_.begin(), table_.end(), 0);
        std::shuffle(table_.begin(), table_.end(), std::mt19937(6));
        for (const auto& [from, to] : {std::pair(&inputs_->k, &k_pages_), std::pair(&inputs_->v, &v_pages_)}) {
            *to = Numbers(from->dtype(), from->count());
            const std::size_t bytes = from->bytes() / table_.size();
            for (std::size_t n = 0; n < table_.size(); ++n)
                std::memcpy(static_cast<std::byte*>(to->data()) + static_cast<std::size_t>(table_[n]) * bytes,
                            static_cast<const std::byte*>(from->data()) + n * bytes, bytes);
        }
    }

    flashtile::options options() const {
        flashtile::options o = {.causal = point_.causal, .threads = point_.threads, .isa = isa_};
        if (point_.page_size != 0)
            o.block_table = flashtile::view(table_.data(), flashtile::dtype::int32,
                                            {point_.batch, point_.seqlen / point_.page_size});
        if (seen_ != nullptr) o.block_lists = seen_->lists();
        return o;
    }
    flashtile::tensor query_view(const Numbers& n) const {
        return flashtile::view(n.data(), n.dtype(), {point_.batch, point_.rows_q(), point_.heads, point_.head_dim});
    }
    flashtile::tensor key_view(const Numbers& n) const {
        if (point_.page_size != 0)
            return flashtile::view(
                n.data(), n.dtype(),
                {point_.batch * point_.seqlen / point_.page_size, point_.page_size, point_.kv_heads, point_.head_dim});
        return flashtile::view(n.data(), n.dtype(), {point_.batch, point_.seqlen, point_.kv_heads, point_.head_dim});
    }
    flashtile::tensor lse_view() const {
        return flashtile::view(lse_.data(), flashtile::fp32, {point_.batch, point_.heads, point_.rows_q()});
    }
    void forward() override {
        const bool pages = point_.page_size != 0;
        flashtile::forward(options(), query_view(inputs_->q), key_view(pages ? k_pages_ : inputs_->k),
                           key_view(pages ? v_pages_ : inputs_->v), query_view(out_), lse_view());
    }
    void backward() override {
        flashtile::backward(options(), query_view(inputs_->q), key_view(inputs_->k), key_view(inputs_->v),
                            query_view(out_), lse_view(), query_view(inputs_->dout), query_view(dq_), key_view(dk_),
                            key_view(dv_));
    }

    flashtile::isa isa_;
    const BlockPattern* seen_;
    const Inputs* inputs_ = nullptr;
    Numbers out_, lse_, dq_, dk_, dv_, k_pages_, v_pages_;
    std::vector<std::int32_t> table_;
};

}  // namespace

std::unique_ptr<Method> make_flashtile(flashtile::isa isa, const BlockPattern* seen) {
    return std::make_unique<Flashtile>(isa, seen);
}

}  // namespace flashtile::cli::bench
