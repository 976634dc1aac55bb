// named_barriers.h: what Hopper's kernels use the named barriers for. A thread block has 16; number 0 is __syncthreads.
// Where a comment says "+ consumer", each consumer warpgroup has a barrier of its own, and there are at most three.
#pragma once

namespace flashtile::barriers {

constexpr unsigned kWarpgroup = 128, kTwoWarpgroups = 256;  // threads

// The forward pass.
constexpr unsigned kTurn = 1;      // + consumer: it may start its products
constexpr unsigned kConsumer = 8;  // + consumer: its four warps keep in step

// The forward pass of latent heads, in which one consumer hands P to the other. Even and odd blocks have turns of their
// own: + 0 and + 1.
constexpr unsigned kSecond = 6;  // the second consumer may start its product

// The backward pass.
constexpr unsigned kBoth = 1;  // both consumers keep in step

// The backward pass of wide heads, in which consumers hand each other tiles: + 0 for even blocks, + 1 for odd ones.
// (With latent heads there is one tile of P.)
constexpr unsigned kFullP = 2, kReadP = 4;    // a tile of P has been written, has been read
constexpr unsigned kFullDS = 6, kReadDS = 8;  // likewise of dS
constexpr unsigned kOwn = 10;                 // the four warps of the consumer that makes dS keep in step

// Both passes.
constexpr unsigned kCleared = 12;  // + consumer: it has cleared rows of a tile that are none of the sequence's

}  // namespace flashtile::barriers
