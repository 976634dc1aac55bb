// instruction_sets.h: the CPU's instruction sets, by the names that the library gives them.
#pragma once

#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

namespace flashtile::cli {

inline constexpr isa kInstructionSets[] = {isa::portable, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx};

inline std::vector<std::string> instruction_set_names() {
    std::vector<std::string> names;
    for (const isa set : kInstructionSets) names.emplace_back(name(set));
    return names;
}

}  // namespace flashtile::cli
