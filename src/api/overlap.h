// overlap.h: whether the elements of two strided views can share memory.
#pragma once

#include <cstddef>

#include "flashtile/flashtile.h"

namespace flashtile::api {

// True if some byte belongs to an element of both. Interleaved views with disjoint elements do not overlap. Views too
// irregular to tell within a bounded search count as overlapping.
bool overlap(const flashtile_tensor& a, const flashtile_tensor& b);

// True if some byte of the `size` bytes from `start` belongs to an element of `a`.
bool overlaps_bytes(const flashtile_tensor& a, const void* start, std::size_t size);

// True if two different indices of `a` name the same memory (or too irregular to tell).
bool overlaps_itself(const flashtile_tensor& a);

// True if each element of `a` lies where that of `b` with the same index lies. They have one shape.
bool same_elements(const flashtile_tensor& a, const flashtile_tensor& b);

}  // namespace flashtile::api
