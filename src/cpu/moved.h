// moved.h: what the kernels move between slow and fast memory, by name, and who is told of it (kernels/moves.h). Not in
// flashtile::cpu, since the command line reads this beside flashtile.hpp, where `cpu` is a device.
#pragma once

#include <cstdint>

namespace flashtile::counting {

// lse, D and dq are also what BackwardState holds of them, in fp32.
enum class Moved { q, k, v, out, lse, dout, D, dq, dk, dv };

// Defined in src/cpu/counted, not in the library.
void count_load(Moved what, std::int64_t elements, std::int64_t element_bytes);
void count_store(Moved what, std::int64_t elements, std::int64_t element_bytes);

}  // namespace flashtile::counting
