// machine.h: what the figures were measured on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashtile::cli::bench {

// "OPENBLAS_CORETYPE=Haswell" where the environment holds OpenBLAS to less than this CPU has; "" where it does not say.
std::string openblas_pin();

// CPU, instruction sets, cores, compiler, versions, date, command line; PyTorch's version where it took part.
nlohmann::json machine_json(const std::string& torch_version);

}  // namespace flashtile::cli::bench
