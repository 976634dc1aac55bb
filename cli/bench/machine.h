// machine.h: what the figures were measured on.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashtile::cli::bench {

// "OPENBLAS_CORETYPE=Haswell" where the environment holds OpenBLAS to less than this CPU has; "" where it does not say.
std::string openblas_pin();

// CPU, instruction sets, cores, compiler, versions, date, command line; `peers` are the versions of torch and openvino
// where they took part.
nlohmann::json machine_json(const std::map<std::string, std::string>& peers);

}  // namespace flashtile::cli::bench
