// plot.cpp: see plot.h.
#include "bench/plot.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/python.h"
#include "io/unfinished.h"

namespace flashtile::cli::bench {

void require_plotter(const std::string& tool) {
    if (!succeeds({python_interpreter(), "-c", "import matplotlib"}, true))
        throw std::runtime_error(
            fmt::format("--plot needs matplotlib in {}; install it with: pip install -r tools/requirements.txt, or set "
                        "FLASHTILE_PYTHON",
                        python_interpreter()));
    static_cast<void>(tool_path(tool));
}

void draw(const std::string& tool, const std::string& path, const nlohmann::json& result) {
    const io::Unfinished data(std::filesystem::absolute(path).parent_path());  // for the program that draws alone
    std::ofstream(data.path()) << result;
    const bool drawn = succeeds({python_interpreter(), tool_path(tool), data.path(), path}, false);
    if (!drawn) throw std::runtime_error(fmt::format("the plot {} could not be drawn", path));
}

}  // namespace flashtile::cli::bench
