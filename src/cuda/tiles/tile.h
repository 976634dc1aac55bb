// tile.h: a row of a tile table. A table is read from the top: the first row that is wide enough and fits the GPU's
// shared memory serves.
#pragma once

namespace flashtile::gpu {

struct Tile {
    int widest;  // the larger of d and dv that the row serves
    int Br, Bc;
    int warps;
    int stages;
    int blocks_per_sm;
    const char* why;
};

}  // namespace flashtile::gpu
