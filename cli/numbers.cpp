// numbers.cpp: see numbers.h.
#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <random>

#include "oracle/precision.h"

namespace flashtile::cli {
namespace {

constexpr std::int64_t period = 1048573;  // a prime

std::size_t size_of(flashtile::dtype dtype) {
    return dtype == flashtile::fp32 ? 4 : 2;
}

void store(void* memory, flashtile::dtype dtype, std::int64_t index, float value) {
    if (dtype == flashtile::fp32)
        static_cast<float*>(memory)[index] = value;
    else
        static_cast<std::uint16_t*>(memory)[index] =
            dtype == flashtile::bf16 ? oracle::to_bf16_bits(value) : oracle::to_fp16_bits(value);
}

double difference(const std::vector<float>& values, const std::vector<float>& reference) {
    if (values.empty() || reference.empty()) return 0.0;
    float largest = 0.0f;
    float apart = 0.0f;
    for (std::size_t n = 0; n < values.size(); ++n) {
        const float here = std::abs(values[n] - reference[n]);
        if (!std::isfinite(here)) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, std::abs(reference[n]));
        apart = std::max(apart, here);
    }
    return apart / std::max(largest, std::numeric_limits<float>::min());
}

}  // namespace

void Numbers::Free::operator()(void* memory) const {
    std::free(memory);
}

Numbers::Numbers(flashtile::dtype dtype, std::int64_t count) : dtype_(dtype), count_(count) {
    const std::size_t whole_lines = (bytes() + 63) / 64 * 64;
    memory_.reset(std::aligned_alloc(64, std::max<std::size_t>(whole_lines, 64)));
    if (!memory_) throw std::bad_alloc();
}

std::size_t Numbers::bytes() const {
    return static_cast<std::size_t>(count_) * size_of(dtype_);
}

std::vector<float> Numbers::as_floats(std::int64_t first, std::int64_t count) const {
    std::vector<float> result(static_cast<std::size_t>(count));
    if (dtype_ == flashtile::fp32) {
        std::copy_n(static_cast<const float*>(data()) + first, count, result.data());
        return result;
    }
    const auto* bits = static_cast<const std::uint16_t*>(data()) + first;
    const auto convert = dtype_ == flashtile::bf16 ? oracle::from_bf16_bits : oracle::from_fp16_bits;
    std::transform(bits, bits + count, result.begin(), convert);
    return result;
}

Numbers random_numbers(flashtile::dtype dtype, std::int64_t count, std::uint64_t seed) {
    Numbers numbers(dtype, count);
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    const std::int64_t drawn = std::min(count, period);
    for (std::int64_t n = 0; n < drawn; ++n) store(numbers.data(), dtype, n, normal(generator));
    auto* bytes = static_cast<std::byte*>(numbers.data());
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    for (std::int64_t n = drawn; n < count; n += period)
        std::memcpy(bytes + n * size, bytes, static_cast<std::size_t>(std::min(period, count - n) * size));
    return numbers;
}

double difference(const Results& results, const Results& reference) {
    return std::max({difference(results.out, reference.out), difference(results.dq, reference.dq),
                     difference(results.dk, reference.dk), difference(results.dv, reference.dv)});
}

double tolerance(flashtile::dtype dtype) {
    switch (dtype) {
        case flashtile::dtype::fp16:
            return 0.008;
        case flashtile::dtype::bf16:
            return 0.06;
        default:
            return 2e-4;
    }
}

}  // namespace flashtile::cli
