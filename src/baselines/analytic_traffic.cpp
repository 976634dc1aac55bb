// analytic_traffic.cpp: the formulas of docs/algorithm.md, "What moves between the memories", which derives them.
#include <algorithm>

#include "baselines/inner_rows.h"

namespace flashtile::baselines {
namespace {

OuterLoop outer_loop(const TrafficProblem& p, bool over_queries) {
    if (p.tile.Br == 0) {
        const double x = static_cast<double>(p.M) / static_cast<double>(4 * p.d);
        return {x, std::min(x, static_cast<double>(p.d)), 1.0 / (x + 1.0), over_queries};
    }
    const std::int64_t rows = over_queries ? p.tile.Br : p.tile.Bc, reach = over_queries ? p.tile.Bc : p.tile.Br;
    return {static_cast<double>(rows), static_cast<double>(reach), 0.0, over_queries};
}

}  // namespace

AnalyticTraffic inner_rows(double N, const OuterLoop& outer, bool causal, double density) {
    if (!causal) {
        const double uneven = density < 1.0 ? N : 0.0;
        const double all = density * N * N / outer.rows;
        return {all, all * outer.smaller + uneven, density * N + uneven};
    }
    const double half = N * N / (2.0 * outer.rows);
    const double inner = (N / outer.rows + 1.0) * outer.reach;  // the inner loop's blocks that the diagonal crosses
    const double last = (outer.rows + 1.0) / 8.0;               // the outer loop's last block
    return outer.over_queries ? AnalyticTraffic{half + N / 2.0, half * outer.smaller + last, N + inner}
                              : AnalyticTraffic{half + N / 2.0, half * outer.smaller, last + inner};
}

AnalyticTraffic analytic_traffic(const TrafficProblem& p) {
    const auto N = static_cast<double>(p.N);
    const auto d = static_cast<double>(p.d);
    const bool forward = p.direction == Direction::forward;
    if (p.algorithm == Algorithm::standard)
        return {forward ? 4.0 * N * N + 4.0 * N * d : 7.0 * N * N + 8.0 * N * d, 0.0, 0.0};

    const bool flash2 = p.algorithm == Algorithm::flash2;
    const AnalyticTraffic rows = inner_rows(N, outer_loop(p, flash2 && forward), p.causal, p.density);
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
