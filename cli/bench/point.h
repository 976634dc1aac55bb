// point.h: one point of the benchmark's grid, and its FLOPs as the FlashAttention-2 paper (section 4.1) counts them.
#pragma once

#include <flashtile/flashtile.hpp>

#include <cstdint>
#include <string>

namespace flashtile::cli::bench {

enum class Pass { forward, backward, both, decode };

inline bool has_backward(Pass pass) {
    return pass == Pass::backward || pass == Pass::both;
}

struct Point {
    Pass pass = Pass::forward;
    flashtile::dtype dtype = flashtile::fp32;
    std::int64_t head_dim = 64;
    bool causal = false;
    std::int64_t seqlen = 512;  // of decode: keys
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    int threads = 1;
    std::int64_t queries = 1;    // of decode
    std::int64_t page_size = 0;  // of decode: 0 is dense; divides seqlen

    std::int64_t rows_q() const { return pass == Pass::decode ? queries : seqlen; }
    std::int64_t q_size() const { return batch * rows_q() * heads * head_dim; }
    std::int64_t kv_size() const { return batch * seqlen * kv_heads * head_dim; }
    // Bytes of one fp32 matrix of scores for every head of every sequence.
    double score_bytes() const {
        return 4.0 * static_cast<double>(batch * heads) * static_cast<double>(rows_q() * seqlen);
    }
};

const char* name_of(Pass pass);
const char* name_of(flashtile::dtype dtype);

// Of decode: what is read of K and V.
double cache_bytes(const Point& point);

// 4 seqlen^2 head_dim heads batch, halved when causal; backward 2.5 times that (5 products to forward's 2), both 3.5.
double flops(const Point& point);

// What a speed counts: FLOPs, or of decode, which memory bounds, bytes.
inline double work(const Point& point) {
    return point.pass == Pass::decode ? cache_bytes(point) : flops(point);
}

// "forward bf16 d=64 causal n=2048 batch=1 heads=32/8 threads=2"
std::string describe(const Point& point);

}  // namespace flashtile::cli::bench
