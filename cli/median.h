// median.h: the median of samples. There must be at least one.
#pragma once

#include <algorithm>
#include <vector>

namespace flashtile::cli {

inline double median(std::vector<double> values) {
    std::ranges::sort(values);
    const std::size_t half = values.size() / 2;
    return values.size() % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

}  // namespace flashtile::cli
