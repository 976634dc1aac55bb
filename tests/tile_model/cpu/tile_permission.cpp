// tile_permission.cpp: the model of the tile unit may be used wherever AVX-512 runs, of which it is made.
#include "cpu/tile_permission.h"

namespace flashtile::cpu {

const std::string& why_no_tiles() {
    static const std::string none;
    return none;
}

}  // namespace flashtile::cpu
