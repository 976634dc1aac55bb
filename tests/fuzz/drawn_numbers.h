// drawn_numbers.h: numbers that a call is seldom given.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <limits>

namespace flashtile::fuzz {

inline std::int64_t strange_size(FuzzedDataProvider& draw) {
    return draw.PickValueInArray<std::int64_t>({-1, 0, 1, 2, 3, 4, 7, 16, 64, 512, 513, 1 << 20, std::int64_t{1} << 31,
                                                std::int64_t{1} << 32, std::int64_t{1} << 40, std::int64_t{1} << 60,
                                                std::int64_t{1} << 62, INT64_MAX, INT64_MIN});
}

inline float strange_number(FuzzedDataProvider& draw) {
    using Limits = std::numeric_limits<float>;
    return draw.PickValueInArray({0.0f, -0.0f, 0.5f, -1.0f, 30.0f, 1e-30f, Limits::denorm_min(), Limits::max(),
                                  Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()});
}

inline bool one_in(int n, FuzzedDataProvider& draw) {
    return draw.ConsumeIntegralInRange(1, n) == n;
}

inline std::int64_t size(std::int64_t low, std::int64_t high, FuzzedDataProvider& draw) {
    return draw.ConsumeIntegralInRange<std::int64_t>(low, high);
}

}  // namespace flashtile::fuzz
