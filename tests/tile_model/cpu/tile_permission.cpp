// tile_permission.cpp: the model of the tile unit may be used wherever AVX-512 runs, of which it is made, unless
// FLASHTILE_TILE_MODEL=refused plays an operating system that refuses.
#include "cpu/tile_permission.h"

#include <cstdlib>
#include <string_view>

namespace flashtile::cpu {

const std::string& why_no_tiles() {
    static const std::string why = [] {
        const char* setting = std::getenv("FLASHTILE_TILE_MODEL");
        return setting != nullptr && std::string_view(setting) == "refused" ? "the model refuses" : "";
    }();
    return why;
}

}  // namespace flashtile::cpu
