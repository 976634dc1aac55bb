// precision.h: the number formats that the oracle judges, and rounding to them (to nearest, ties to even). Written here
// so that a fault in the library's own conversions shows.
#pragma once

#include <cstdint>

namespace flashtile::oracle {

enum class Precision { fp32, fp16, bf16 };

std::uint16_t to_fp16_bits(float value);
float from_fp16_bits(std::uint16_t bits);
std::uint16_t to_bf16_bits(float value);
float from_bf16_bits(std::uint16_t bits);

// The value that storing `value` in the format and reading it back gives.
float round_to(float value, Precision precision);

// The distance between neighbours of the format at magnitude `value`.
double ulp_at(double value, Precision precision);

}  // namespace flashtile::oracle
