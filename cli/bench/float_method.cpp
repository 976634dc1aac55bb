// float_method.cpp: see float_method.h.
#include "bench/float_method.h"

#include <cblas.h>
#include <fmt/format.h>

#include <cmath>

namespace flashtile::cli::bench {

std::string FloatMethod::isa(const Point&) const {
    return fmt::format("openblas {}", openblas_get_corename());
}

void FloatMethod::prepare(const Point& point, const Inputs& inputs) {
    load(point, inputs);
    if (point.pass == Pass::backward) forward();
}

void FloatMethod::load(const Point& point, const Inputs& inputs) {
    point_ = point;
    q_ = inputs.q.as_floats();
    k_ = inputs.k.as_floats();
    v_ = inputs.v.as_floats();
    results_.out.resize(q_.size());
    if (point.pass == Pass::forward) return;
    dout_ = inputs.dout.as_floats();
    results_.dq.resize(q_.size());
    results_.dk.resize(k_.size());
    results_.dv.resize(v_.size());
}

void FloatMethod::release() {
    results_ = Results();
    for (auto* numbers : {&q_, &k_, &v_, &dout_}) *numbers = std::vector<float>();
}

baselines::Shape FloatMethod::shape() const {
    return {.batch = point_.batch,
            .seqlen_q = point_.seqlen,
            .seqlen_k = point_.seqlen,
            .heads = point_.heads,
            .kv_heads = point_.kv_heads,
            .head_dim = point_.head_dim,
            .causal = point_.causal,
            .scale = 1.0f / std::sqrt(static_cast<float>(point_.head_dim))};
}

}  // namespace flashtile::cli::bench
