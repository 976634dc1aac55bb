// tolerance.cpp: errors over a problem and the bounds on them.
#include "oracle/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashtile::oracle {

Error error_of(std::span<const double> values, std::span<const double> reference) {
    Error error;
    double squares = 0.0;
    for (std::size_t n = 0; n < reference.size(); ++n) {
        if (values[n] == reference[n]) continue;  // infinities of one sign too
        const double difference = std::abs(values[n] - reference[n]);
        if (!(difference <= error.max)) error.max = difference;  // a NaN stays, as no number compares with it
        if (std::isnan(difference)) return {difference, difference};
        squares += difference * difference;
    }
    if (!reference.empty()) error.rms = std::sqrt(squares / static_cast<double>(reference.size()));
    return error;
}

Error allowed_error(const Error& standard, std::span<const double> reference, Precision precision, double roundoff) {
    double largest = 0.0;
    for (const double value : reference)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    const double floor = 2.0 * ulp_at(largest, precision) + roundoff;
    return {2.0 * standard.max + floor, 2.0 * standard.rms + floor};
}

double gradient_roundoff(double terms, double largest_lse, bool terms_cancel, double from_out, Precision precision) {
    const double unit = ulp_at(1.0, precision) / 2.0;
    return 0x1p-24 * (largest_lse + (terms_cancel ? 2.0 : 0.0)) * terms + 2.0 * unit * from_out;
}

double allowed_lse_error(double largest_score, double largest_lse) {
    return 8.0 * 0x1p-24 * (1.0 + largest_score + largest_lse);
}

double largest_value(std::int64_t keys) {
    return static_cast<double>(std::numeric_limits<float>::max()) / (256.0 * static_cast<double>(keys));
}

}  // namespace flashtile::oracle
