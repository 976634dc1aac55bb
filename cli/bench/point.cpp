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
        case Pass::decode:
            return "decode";
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

double cache_bytes(const Point& point) {
    return 2.0 * static_cast<double>(point.kv_size()) * (point.dtype == flashtile::fp32 ? 4.0 : 2.0);
}

double flops(const Point& point) {
    const double forward = 4.0 * static_cast<double>(point.rows_q()) * static_cast<double>(point.seqlen) *
                           static_cast<double>(point.head_dim * point.heads * point.batch) * (point.causal ? 0.5 : 1.0);
    switch (point.pass) {
        case Pass::forward:
        case Pass::decode:
            return forward;
        case Pass::backward:
            return 2.5 * forward;
        case Pass::both:
            break;
    }
    return 3.5 * forward;
}

std::string describe(const Point& point) {
    const std::string pages = point.page_size == 0 ? "" : fmt::format(" pages of {}", point.page_size);
    return fmt::format("{} {} d={}{} n={} batch={} heads={}/{} threads={}{}", name_of(point.pass), name_of(point.dtype),
                       point.head_dim, point.causal ? " causal" : "", point.seqlen, point.batch, point.heads,
                       point.kv_heads, point.threads, pages);
}

}  // namespace flashtile::cli::bench
