// cpu_model.h: what CPU this is.
#pragma once

#include <string>

namespace flashtile::cli {

std::string cpu_model();

// The value of the first line of /proc/cpuinfo with this name; "" where there is none.
std::string cpuinfo(const std::string& name);

}  // namespace flashtile::cli
