// numbers.h: what `bench` and `tune` compute with: random numbers of a dtype, and results as fp32 for comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <vector>

namespace flashtile::cli {

// Numbers of one dtype in memory that this owns, aligned to a cache line and not initialised.
class Numbers {
public:
    Numbers() = default;
    Numbers(flashtile::dtype dtype, std::int64_t count);

    void* data() const { return memory_.get(); }
    flashtile::dtype dtype() const { return dtype_; }
    std::int64_t count() const { return count_; }
    std::size_t bytes() const;
    std::vector<float> as_floats() const { return as_floats(0, count_); }
    std::vector<float> as_floats(std::int64_t first, std::int64_t count) const;

private:
    struct Free {
        void operator()(void* memory) const;
    };
    std::unique_ptr<void, Free> memory_;
    flashtile::dtype dtype_ = flashtile::fp32;
    std::int64_t count_ = 0;
};

// Standard normal numbers, repeated with a period that no tensor dimension divides. The same on every run.
Numbers random_numbers(flashtile::dtype dtype, std::int64_t count, std::uint64_t seed);

// What was computed, as fp32 (batch, seqlen, heads, head_dim); empty where the pass has no such result.
struct Results {
    std::vector<float> out, dq, dk, dv;
};

// The largest difference of any result, relative to the largest value of that result in `reference`; results that
// either side lacks are passed over. Infinite where a value is not finite.
double difference(const Results& results, const Results& reference);

// Differences up to this are taken for rounding. That of a wrong mask, scale or head is far above it.
double tolerance(flashtile::dtype dtype);

}  // namespace flashtile::cli
