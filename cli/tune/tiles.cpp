// tiles.cpp: see tiles.h.
#include "tune/tiles.h"

#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace flashtile::cli::tune {
namespace {

nlohmann::json pass_of(const PlanArguments& problem, Pass pass) {
    nlohmann::json report = nlohmann::json::parse(plan_report_of(problem))[name(pass)];
    if (report.contains("why_not")) throw std::invalid_argument(report["why_not"].get<std::string>());
    return report;
}

// The kernel of a pass whose tile can be chosen. The tiles of its other kernels follow from that one.
nlohmann::json main_kernel(const nlohmann::json& report, Pass pass) {
    for (const auto& kernel : report["kernels"])
        if (const std::string name = kernel["kernel"];
            pass == Pass::forward || name.starts_with("backward_sm") || name == "backward_keys")
            return kernel;
    throw std::logic_error("the library's plan has no kernel that it is about");
}

}  // namespace

const char* name(Pass pass) {
    return pass == Pass::forward ? "forward" : "backward";
}

Tiles tiles_of(const PlanArguments& problem, Pass pass) {
    const nlohmann::json report = pass_of(problem, pass);
    Tiles tiles{main_kernel(report, pass)["kernel"], {}};
    for (const auto& each : report["alternatives"]) tiles.tiles.push_back({each["tile"], each["choice"]});
    return tiles;
}

void choose(const PlanArguments& problem, Pass pass, const NamedTile& tile) {
    use_choice(tile.choice, false);
    if (!main_kernel(pass_of(problem, pass), pass)["measured"].get<bool>())
        throw std::runtime_error("the library does not take up the tile that it named: " + tile.tile);
}

}  // namespace flashtile::cli::tune
