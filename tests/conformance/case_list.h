// case_list.h: the problems that every backend, instruction set and kernel must solve: a named list of edges, and
// random ones from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/case.h"

namespace flashtile::conformance {

const std::vector<Case>& named_cases();

// nullptr where there is none of that name.
const Case* find_case(const std::string& name);

Case random_case(std::uint64_t seed);

}  // namespace flashtile::conformance
