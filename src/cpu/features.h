// features.h: which instruction sets this CPU and this build can run, and which one a call gets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cpu/kernels.h"

namespace flashtile::cpu {

const char* isa_name(flashtile_isa isa);
bool isa_available(flashtile_isa isa);
const char* isa_why_not(flashtile_isa isa);  // "" where it is available

// The kernels for a dtype: the set that the call forces, else FLASHTILE_ISA, else the fastest that there is. Throws if
// a forced one cannot run here.
const Kernels& kernels_for(DType dtype, flashtile_isa forced);

// Why kernels_for gives that set, and by name why each of the others is passed over, the fastest first.
struct IsaReasons {
    std::string why;
    std::vector<std::pair<const char*, std::string>> passed_over;
};
IsaReasons isa_reasons(DType dtype, flashtile_isa forced);

}  // namespace flashtile::cpu
