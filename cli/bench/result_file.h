// result_file.h: the file of a benchmark's results, written whole or not at all.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashtile::cli::bench {

// Throws std::runtime_error, naming the option, where the file could not be written.
void require_writable(const char* option, const std::string& path);

void write_json(const std::string& path, const nlohmann::json& result);

}  // namespace flashtile::cli::bench
