// measured_choice.cpp: see contest.h.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string_view>

#include "tune/contest.h"

namespace flashtile::cli::tune {
namespace {

long long nanoseconds(double milliseconds) {
    return std::llround(milliseconds * 1e6);
}

}  // namespace

std::string measured_choice(const Contestant& best, const Contestant& table) {
    constexpr std::string_view kUnmeasured = " nanoseconds=0 table_nanoseconds=0";
    if (!best.choice.ends_with(kUnmeasured))
        throw std::logic_error("the library's alternative '" + best.choice + "' has a measurement");
    return fmt::format("{} nanoseconds={} table_nanoseconds={}",
                       best.choice.substr(0, best.choice.size() - kUnmeasured.size()), nanoseconds(best.milliseconds),
                       nanoseconds(table.milliseconds));
}

}  // namespace flashtile::cli::tune
