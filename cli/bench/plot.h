// plot.h: pictures of results, which the Python programs of tools/ draw.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flashtile::cli::bench {

// Throws std::runtime_error where there is no matplotlib, or no such file of tools/.
void require_plotter(const std::string& tool);

void draw(const std::string& tool, const std::string& path, const nlohmann::json& result);

}  // namespace flashtile::cli::bench
