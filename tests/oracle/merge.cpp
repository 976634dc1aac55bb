// merge.cpp: see merge.h.
#include "oracle/merge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace flashtile::oracle {

Merged merge(const Parts& p) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto at = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    const std::int64_t rows = p.batch * p.heads * p.seqlen, elements = rows * p.head_dim;
    Merged merged;
    merged.lse.resize(at(rows));
    merged.out.resize(at(elements));
    merged.terms.resize(at(elements));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t b = row / (p.heads * p.seqlen), h = row / p.seqlen % p.heads, i = row % p.seqlen;
        double greatest = -kInfinity, sum = 0.0;
        for (std::int64_t part = 0; part < p.parts; ++part)
            greatest = std::max(greatest, p.lses[at(part * rows + row)]);
        if (greatest == -kInfinity) {
            merged.lse[at(row)] = -kInfinity;
            continue;  // out is 0
        }
        for (std::int64_t part = 0; part < p.parts; ++part) sum += std::exp(p.lses[at(part * rows + row)] - greatest);
        const double lse = greatest + std::log(sum);
        merged.lse[at(row)] = lse;
        for (std::int64_t c = 0; c < p.head_dim; ++c) {
            const std::size_t to = at(((b * p.seqlen + i) * p.heads + h) * p.head_dim + c);
            for (std::int64_t part = 0; part < p.parts; ++part) {
                const double part_lse = p.lses[at(part * rows + row)];
                if (part_lse == -kInfinity) continue;
                const double term = std::exp(part_lse - lse) * p.outs[at(part * elements) + to];
                merged.out[to] += term;
                merged.terms[to] += std::abs(term);
            }
        }
    }
    return merged;
}

}  // namespace flashtile::oracle
