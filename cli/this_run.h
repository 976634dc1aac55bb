// this_run.h: of this run what its results should name.
#pragma once

#include <string>

namespace flashtile::cli {

std::string command_line();
std::string utc_now();  // 2026-11-24T03:30:00Z

}  // namespace flashtile::cli
