// number_checks.cpp: see number_checks.h.
#include "number_checks.h"

#include <charconv>
#include <cmath>
#include <cstdint>

namespace flashtile::cli {
namespace {

std::string check(const std::string& text, std::int64_t least) {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) return "is " + text + ", allowed is a number that fits 64 bits";
    if (error == std::errc() && stopped == end && value >= least) return "";
    return "is " + text + ", allowed is a whole number of at least " + std::to_string(least);
}

}  // namespace

std::string at_least_0(const std::string& text) {
    return check(text, 0);
}

std::string at_least_1(const std::string& text) {
    return check(text, 1);
}

std::string above_0(const std::string& text) {
    double value = 0.0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stopped == end && value > 0.0 && std::isfinite(value)) return "";
    return "is " + text + ", allowed is a number above 0";
}

}  // namespace flashtile::cli
