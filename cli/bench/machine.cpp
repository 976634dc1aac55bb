// machine.cpp: see machine.h.
#include "bench/machine.h"

#include <cblas.h>

#include <cstdlib>
#include <ctime>
#include <flashtile/flashtile.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "attention_names.h"
#include "cpu_model.h"

namespace flashtile::cli::bench {
namespace {

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const auto isa : kInstructionSets)
        if (isa_available(isa)) names.emplace_back(isa_name(isa));
    return names;
}

std::string command_line() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string line{std::istreambuf_iterator<char>(file), {}};
    while (!line.empty() && line.back() == '\0') line.pop_back();
    for (char& c : line)
        if (c == '\0') c = ' ';
    return line;
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

const char* compiler() {
#if defined(__clang__)
    return __VERSION__;
#else
    return "GCC " __VERSION__;
#endif
}

}  // namespace

std::string openblas_pin() {
    const char* core = std::getenv("OPENBLAS_CORETYPE");
    return core && *core ? std::string("OPENBLAS_CORETYPE=") + core : "";
}

nlohmann::json machine_json(const std::string& torch_version) {
    nlohmann::json machine = {
        {"cpu", cpu_model()},
        {"family", cpuinfo("cpu family")},
        {"model", cpuinfo("model\t")},
        {"isas", instruction_sets()},
        {"cores", std::thread::hardware_concurrency()},
        {"compiler", compiler()},
        {"flashtile", flashtile::version()},
        {"openblas", openblas_get_config()},
        {"date", utc_now()},
        {"command", command_line()},
    };
    if (!openblas_pin().empty()) machine["openblas_pin"] = openblas_pin();
    if (!torch_version.empty()) machine["torch"] = torch_version;
    return machine;
}

}  // namespace flashtile::cli::bench
