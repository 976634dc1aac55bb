// convert.h: values of one floating-point type as another, each rounded once, to nearest even.
#pragma once

#include <cstddef>

#include "io/array.h"

namespace flashtile::io {

bool is_floating(DType dtype);  // and convert() takes it: e4m3 alone says nothing without its scales

// `from` may lie at any address. Both types are of fp32, fp16, bf16 and fp64, or the same, which is a copy.
void convert(DType from_dtype, const void* from, DType to_dtype, void* to, std::size_t count);

}  // namespace flashtile::io
