// counted_traffic.cpp: the code of the algorithms, walked with a Count and without arithmetic.
#include <vector>

#include "baselines/flash1.h"
#include "baselines/flash2.h"
#include "baselines/one_head.h"
#include "baselines/traffic.h"

namespace flashtile::baselines {
namespace {

// Evenly: a row of T blocks has more than density T - 1 and less than density T + 1 of them, and so has a column.
std::vector<std::uint8_t> spread(double density, std::int64_t Tr, std::int64_t Tc) {
    std::vector<std::uint8_t> blocks;
    blocks.reserve(static_cast<std::size_t>(Tr * Tc));
    const auto first = [&](std::int64_t n) { return std::floor(density * static_cast<double>(n)); };
    for (std::int64_t i = 0; i < Tr; ++i)
        for (std::int64_t j = 0; j < Tc; ++j) blocks.push_back(first(i + j + 1) > first(i + j) ? 1 : 0);
    return blocks;
}

}  // namespace

Tile tile_of(const TrafficProblem& p) {
    if (p.algorithm == Algorithm::standard) return {0, 0};
    if (p.tile.Br != 0) return p.tile;
    return p.algorithm == Algorithm::flash2 && p.direction == Direction::forward ? flash2_forward_tile(p.M, p.d)
                                                                                 : flash1_tile(p.M, p.d);
}

Traffic counted_traffic(const TrafficProblem& p) {
    const Shape shape{.seqlen_q = p.N, .seqlen_k = p.N, .head_dim = p.d, .causal = p.causal};
    const Tile tile = tile_of(p);
    const auto blocks = [&](std::int64_t rows) { return (p.N + rows - 1) / rows; };
    std::vector<std::uint8_t> present;
    if (p.density < 1.0 && tile.Br != 0) present = spread(p.density, blocks(tile.Br), blocks(tile.Bc));
    const Masking masking{.blocks = present.empty() ? nullptr : present.data()};
    const HeadMasking mask(shape, masking, tile, 0, 0);

    const Slow<float> rows = Matrix<float>{nullptr, p.N, p.d, p.d};  // any of Q, K, V, O and their gradients
    const Slow<float> vector = Matrix<float>{nullptr, p.N, 1, 1};
    const Slow<float> scores = Matrix<float>{nullptr, p.N, p.N, p.N};
    Counted count{.computes = false};
    Memory memory(count);
    const bool forward = p.direction == Direction::forward;
    switch (p.algorithm) {
        case Algorithm::standard:
            if (forward)
                standard_forward(shape, StandardForward{rows, rows, rows, rows, scores}, 1, memory);
            else
                standard_backward(shape, StandardBackward{rows, rows, rows, scores, rows, rows, rows, rows, scores}, 1,
                                  memory);
            break;
        case Algorithm::flash1:
            if (forward)
                flash1_forward(Flash1Forward{rows, rows, rows, rows, vector, vector}, mask, tile, 1.0f, memory);
            else
                flash1_backward(Flash1Backward{rows, rows, rows, rows, rows, vector, vector, rows, rows, rows}, mask,
                                tile, 1.0f, memory);
            break;
        case Algorithm::flash2:
            if (forward)
                flash2_forward(Flash2Forward{rows, rows, rows, rows, vector}, mask, tile, 1.0f, 0, p.N, memory);
            else
                flash2_backward(Flash2Backward{rows, rows, rows, rows, rows, vector, rows, rows, rows, vector}, mask,
                                tile, 1.0f, memory);
            break;
    }
    return {count.loads, count.stores, count.fast};
}

}  // namespace flashtile::baselines
