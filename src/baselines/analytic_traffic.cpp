// analytic_traffic.cpp: the formulas of docs/algorithm.md, "What moves between the memories", which derives them.
#include <algorithm>

#include "baselines/traffic.h"

namespace flashtile::baselines {
namespace {

// Rows that the inner loop meets, all turns of the outer loop together, and what rounding to whole blocks may do to
// them.
AnalyticTraffic inner_rows(const TrafficProblem& p, bool queries_outside) {
    const auto N = static_cast<double>(p.N);
    // Rows of a block of the outer and of the inner loop, before they are rounded up.
    double x = static_cast<double>(p.M) / static_cast<double>(4 * p.d);
    double y = std::min(x, static_cast<double>(p.d));
    double smaller = 1.0 / (x + 1.0);  // by which share of N / x the number of whole blocks may be less
    if (p.tile.Br != 0) {
        x = static_cast<double>(queries_outside ? p.tile.Br : p.tile.Bc);
        y = static_cast<double>(queries_outside ? p.tile.Bc : p.tile.Br);
        smaller = 0.0;
    }
    if (!p.causal) {
        const double uneven = p.density < 1.0 ? N : 0.0;
        const double all = p.density * N * N / x;
        return {all, all * smaller + uneven, p.density * N + uneven};
    }
    const double half = N * N / (2.0 * x);
    const double inner = (N / x + 1.0) * y;  // the inner loop's blocks that the diagonal crosses
    const double last = (x + 1.0) / 8.0;     // the outer loop's last block
    return queries_outside ? AnalyticTraffic{half + N / 2.0, half * smaller + last, N + inner}
                           : AnalyticTraffic{half + N / 2.0, half * smaller, last + inner};
}

}  // namespace

AnalyticTraffic analytic_traffic(const TrafficProblem& p) {
    const auto N = static_cast<double>(p.N);
    const auto d = static_cast<double>(p.d);
    const bool forward = p.direction == Direction::forward;
    if (p.algorithm == Algorithm::standard)
        return {forward ? 4.0 * N * N + 4.0 * N * d : 7.0 * N * N + 8.0 * N * d, 0.0, 0.0};

    const bool flash2 = p.algorithm == Algorithm::flash2;
    AnalyticTraffic rows = inner_rows(p, flash2 && forward);
    // What moves once, and what moves for a row of the inner loop.
    double once = 0.0, each = 0.0;
    if (forward) {
        once = flash2 ? 2.0 * N * d + N : 3.0 * N * d + 2.0 * N;
        each = flash2 ? 2.0 * d : 3.0 * d + 4.0;
    } else {
        once = flash2 ? 7.0 * N * d + N : 7.0 * N * d;
        each = flash2 ? 4.0 * d + 2.0 : 5.0 * d + 2.0;
    }
    return {once + each * rows.elements, each * rows.below, each * rows.above};
}

}  // namespace flashtile::baselines
