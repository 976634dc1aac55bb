// rotary.cpp: see rotary.h.
#include "oracle/rotary.h"

#include <cstddef>

namespace flashtile::oracle {

std::vector<double> rotate(std::span<const double> row, std::span<const double> cos, std::span<const double> sin,
                           std::int64_t begin, bool interleaved) {
    std::vector<double> result(row.begin(), row.end());
    for (std::size_t n = 0; n < cos.size(); ++n) {
        const std::size_t first = static_cast<std::size_t>(begin) + (interleaved ? 2 * n : n);
        const std::size_t second = interleaved ? first + 1 : first + cos.size();
        result[first] = row[first] * cos[n] - row[second] * sin[n];
        result[second] = row[first] * sin[n] + row[second] * cos[n];
    }
    return result;
}

}  // namespace flashtile::oracle
