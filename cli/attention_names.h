// attention_names.h: the instruction sets and dtypes that attention can be computed in, by the names that flags give
// them.
#pragma once

#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

namespace flashtile::cli {

inline constexpr isa kInstructionSets[] = {isa::portable,    isa::avx2, isa::avx512,
                                           isa::avx512_bf16, isa::amx,  isa::neon_bf16};
std::vector<std::string> instruction_set_names();
isa parse_isa(const std::string& name);  // "auto", "portable", ...

std::vector<std::string> dtype_names();
dtype parse_dtype(const std::string& name);  // "fp32", "fp16", "bf16"

}  // namespace flashtile::cli
