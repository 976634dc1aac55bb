// tolerance.h: what error is allowed. Over a problem, max and rms error may be at most twice those of standard
// attention in the same precision, plus a floor of 2 ulp of the format at the largest reference value. In a small
// problem standard attention may escape a roundoff by luck (a lone key has P = 1 exactly; a bias of one element has one
// error, near 0 as often as not), so gradients are also allowed what the interface's own roundoff must be expected to
// cost: half an ulp of lse, which is a relative error of P; 2 roundoffs of fp32 of the terms that cancel in dS; and
// twice the expected effect of the rounding of out on D. Never a number that was chosen because it passes.
#pragma once

#include <cstdint>
#include <span>

#include "oracle/precision.h"

namespace flashtile::oracle {

struct Error {
    double max = 0.0;
    double rms = 0.0;
};

// NaN or infinite where a value is that its reference is not.
Error error_of(std::span<const double> values, std::span<const double> reference);

// `roundoff` is added to the floor.
Error allowed_error(const Error& standard, std::span<const double> reference, Precision precision,
                    double roundoff = 0.0);

// Of a gradient whose absolute terms add up to `terms` at most, and that a relative roundoff of 1 in out moves by
// `from_out`. dv has no dS in it: nothing cancels there, and from_out is 0.
double gradient_roundoff(double terms, double largest_lse, bool terms_cancel, double from_out, Precision precision);

// lse is stored in fp32 on every backend, and over many keys it is larger than every score.
double allowed_lse_error(double largest_score, double largest_lse);

// Up to which v is promised finite results (docs/semantics.md) where a query sees `keys` keys: O is summed in fp32
// before it is divided by l, with P up to 256 where a maximum lags.
double largest_value(std::int64_t keys);

}  // namespace flashtile::oracle
