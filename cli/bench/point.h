// point.h: one point of the benchmark's grid, and its FLOPs as the FlashAttention-2 paper (section 4.1) counts them.
#pragma once

#include <flashtile/flashtile.hpp>

#include <cstdint>
#include <string>

namespace flashtile::cli::bench {

enum class Pass { forward, backward, both };

struct Point {
    Pass pass = Pass::forward;
    flashtile::dtype dtype = flashtile::fp32;
    std::int64_t head_dim = 64;
    bool causal = false;
    std::int64_t seqlen = 512;
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    int threads = 1;

    std::int64_t q_size() const { return batch * seqlen * heads * head_dim; }
    std::int64_t kv_size() const { return batch * seqlen * kv_heads * head_dim; }
    // Bytes of one fp32 matrix of scores for every head of every sequence.
    double score_bytes() const {
        return 4.0 * static_cast<double>(batch * heads) * static_cast<double>(seqlen * seqlen);
    }
};

const char* name_of(Pass pass);
const char* name_of(flashtile::dtype dtype);

// 4 seqlen^2 head_dim heads batch, halved when causal; backward 2.5 times that (5 products to forward's 2), both 3.5.
double flops(const Point& point);

// "forward bf16 d=64 causal n=2048 batch=1 heads=32/8 threads=2"
std::string describe(const Point& point);

}  // namespace flashtile::cli::bench
