// difference.h: an image as what it takes to make it from another one: pieces that the two share, by their places, and
// the bytes between them. Kernels that differ in an option or in their type share most of their instructions, over
// distances at which a wheel's own compression (32 KB) sees nothing.
//
// The bytes are a number, how many of them are steps; the steps; and the bytes that no piece has, in order. A step is
// how many of these come next, and but for the last step the length of a piece that follows them and its place: how
// much further it lies behind the place being written than the last piece did, in the base followed by what is written
// so far. Numbers have 7 bits a byte, lowest first, and the sign of a distance in their lowest bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flashtile::gpu {

std::string difference(std::string_view base, std::string_view image);

// The image of `bytes` bytes, or nothing where the difference does not make one of that size from this base, whatever
// it holds.
std::optional<std::string> restored(std::string_view base, std::string_view difference, std::uint64_t bytes);

}  // namespace flashtile::gpu
