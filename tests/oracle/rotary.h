// rotary.h: rotary position embedding (RoFormer, arXiv 2104.09864) in fp64, straight from the definition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace flashtile::oracle {

// A row of a head with its columns from `begin` on rotated by cos.size() angles: pairs are columns 2 n and 2 n + 1
// where interleaved, else n and n + cos.size().
std::vector<double> rotate(std::span<const double> row, std::span<const double> cos, std::span<const double> sin,
                           std::int64_t begin, bool interleaved);

}  // namespace flashtile::oracle
