// tile_permission.h: whether this process may use the tile unit of AMX: the CPU must have it, and Linux, which must
// make room for 8 KiB more of state in a thread, must be asked first.
#pragma once

#include <string>

namespace flashtile::cpu {

// "" if it may. Asks once, for the whole process: for threads that there are and that come later, and for children.
const std::string& why_no_tiles();

}  // namespace flashtile::cpu
