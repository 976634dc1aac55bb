// peer_process.cpp: see peer_process.h.
#include "bench/peer_process.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace flashtile::cli::bench {

namespace fs = std::filesystem;
using nlohmann::json;

ExchangeFolder::ExchangeFolder() {
    std::string name = (fs::temp_directory_path() / "flashtile-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error(fmt::format("{} cannot be created", name));
    path_ = name;
}

ExchangeFolder::~ExchangeFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

void ExchangeFolder::write(const char* name, const Numbers& numbers) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(static_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.bytes()));
    if (!file.flush()) throw std::runtime_error(fmt::format("{} cannot be written", (path_ / name).string()));
}

std::vector<float> ExchangeFolder::read(const char* name, std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::ifstream file(path_ / name, std::ios::binary);
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!file) throw std::runtime_error(fmt::format("{} cannot be read", (path_ / name).string()));
    return values;
}

PeerProcess::PeerProcess(const std::string& peer, std::string product)
    : product_(std::move(product)), process_({python_interpreter(), tool_path(fmt::format("bench_{}.py", peer))}) {
    try {
        greeting_ = json::parse(process_.read_line());
    } catch (const std::exception&) {
        throw std::runtime_error(
            fmt::format("--against={} needs {} in {}; install it with: pip install -r tools/requirements.txt, or set "
                        "FLASHTILE_PYTHON",
                        peer, product_, python_interpreter()));
    }
}

json PeerProcess::ask(const json& request) {
    process_.write_line(request.dump());
    json answer = json::parse(process_.read_line());
    if (!answer.at("ok").get<bool>())
        throw std::runtime_error(fmt::format("{}: {}", product_, answer.at("error").get<std::string>()));
    return answer;
}

}  // namespace flashtile::cli::bench
