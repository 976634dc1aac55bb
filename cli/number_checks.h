// number_checks.h: checks that a flag's number is not too small. CLI11's own checks would print the largest double as
// the upper end of the range, in 300 digits.
#pragma once

#include <string>

namespace flashtile::cli {

// Whole numbers; "" where `text` is right, otherwise what is wrong with it, as CLI11 wants it.
std::string at_least_0(const std::string& text);
std::string at_least_1(const std::string& text);
// Any number.
std::string above_0(const std::string& text);

}  // namespace flashtile::cli
