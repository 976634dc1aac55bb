// machine.cpp: see machine.h.
#include "bench/machine.h"

#include <cblas.h>

#include <cstdlib>
#include <flashtile/flashtile.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "attention_names.h"
#include "cpu_model.h"
#include "this_run.h"

namespace flashtile::cli::bench {
namespace {

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const auto isa : kInstructionSets)
        if (isa_available(isa)) names.emplace_back(isa_name(isa));
    return names;
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

nlohmann::json machine_json(const std::map<std::string, std::string>& peers) {
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
    for (const auto& [name, version] : peers) machine[name] = version;
    return machine;
}

}  // namespace flashtile::cli::bench
