// precision.h: the number formats that the oracle judges, and rounding to them (to nearest, ties to even). Written here
// so that a fault in the library's own conversions shows.
#pragma once

#include <cstdint>

namespace flashtile::oracle {

enum class Precision { fp32, fp16, bf16, e4m3 };

std::uint16_t to_fp16_bits(float value);
float from_fp16_bits(std::uint16_t bits);
std::uint16_t to_bf16_bits(float value);
float from_bf16_bits(std::uint16_t bits);

// e4m3 without infinities: at most 448 either way, beyond which is NaN for what is not finite and 448 for the rest.
std::uint8_t to_e4m3_bits(float value);
float from_e4m3_bits(std::uint8_t bits);

// The value that storing `value` in the format and reading it back gives.
float round_to(float value, Precision precision);

// The distance between neighbours of the format at magnitude `value`.
double ulp_at(double value, Precision precision);

}  // namespace flashtile::oracle
