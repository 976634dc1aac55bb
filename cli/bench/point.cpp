// point.cpp: see point.h.
#include "bench/point.h"

#include <fmt/format.h>

namespace flashtile::cli::bench {

const char* name_of(Pass pass) {
    switch (pass) {
        case Pass::forward:
            return "forward";
        case Pass::backward:
            return "backward";
        case Pass::both:
            break;
    }
    return "both";
}

const char* name_of(flashtile::dtype dtype) {
    switch (dtype) {
        case flashtile::dtype::fp16:
            return "fp16";
        case flashtile::dtype::bf16:
            return "bf16";
        default:
            return "fp32";
    }
}

double flops(const Point& point) {
    const auto n = static_cast<double>(point.seqlen);
    const double forward =
        4.0 * n * n * static_cast<double>(point.head_dim * point.heads * point.batch) * (point.causal ? 0.5 : 1.0);
    switch (point.pass) {
        case Pass::forward:
            return forward;
        case Pass::backward:
            return 2.5 * forward;
        case Pass::both:
            break;
    }
    return 3.5 * forward;
}

std::string describe(const Point& point) {
    return fmt::format("{} {} d={}{} n={} batch={} heads={}/{} threads={}", name_of(point.pass), name_of(point.dtype),
                       point.head_dim, point.causal ? " causal" : "", point.seqlen, point.batch, point.heads,
                       point.kv_heads, point.threads);
}

}  // namespace flashtile::cli::bench
