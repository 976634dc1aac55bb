// info.cpp: `flashtile info`: what this machine can run, and what a call would get.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <flashtile/flashtile.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attention_names.h"
#include "available_memory.h"
#include "commands.h"
#include "cpu_model.h"
#include "plan.h"

namespace flashtile::cli {
namespace {

constexpr const char* examples = R"(Examples:
  flashtile info                           devices, instruction sets and defaults
  FLASHTILE_ISA=avx2 flashtile info        what the environment makes of them
  flashtile info --json                    the same for programs
  flashtile info --plan --device=cpu --seqlen-q=8192 --causal
                                           how a problem runs on this CPU, and why so
  flashtile info --plan --device=cpu --seqlen-q=1 --seqlen-k=65536 --heads=32 --kv-heads=8 --page-size=16
                                           how one query a sequence is decoded: splits of the keys
  flashtile info --plan --device-name=H200 --seqlen-q=8192 --causal
                                           which CUDA kernels it gets there, and why)";

// Of all the features that the CPU names, those that attention could use.
constexpr auto interesting = std::to_array<std::string_view>(
    {"avx2",        "fma",      "f16c",        "avx512f",     "avx512bw", "avx512cd", "avx512dq", "avx512vl",
     "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16", "amx_int8",
     "asimd",       "asimdhp",  "asimddp",     "bf16",        "sve",      "sve2",     "i8mm"});

std::vector<std::string> cpu_features() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        std::istringstream words(line);
        std::vector<std::string> features;
        for (std::string word; words >> word;)
            if (std::ranges::find(interesting, word) != interesting.end()) features.push_back(word);
        return features;
    }
    return {};
}

nlohmann::ordered_json gather() {
    nlohmann::ordered_json info;
    info["version"] = flashtile::version();
    info["devices"] = {{{"device", "cpu"},
                        {"name", cpu_model()},
                        {"threads", flashtile::get_threads()},
                        {"memory_available", available_memory()},
                        {"features", cpu_features()}}};
    info["isas"] = nlohmann::ordered_json::array();
    for (const isa set : kInstructionSets) {
        info["isas"].push_back({{"name", isa_name(set)}, {"available", isa_available(set)}});
        if (!isa_available(set)) info["isas"].back()["why_not"] = isa_why_not(set);
    }
    for (const auto& [name, type] :
         {std::pair("fp32", FLASHTILE_FP32), std::pair("fp16", FLASHTILE_FP16), std::pair("bf16", FLASHTILE_BF16)})
        info["chosen"][name] = flashtile_isa_name(flashtile_isa_chosen(type));
    info["cuda"] = nlohmann::ordered_json::parse(flashtile::cuda_info());
    return info;
}

std::string text(const nlohmann::ordered_json& object, const char* name) {
    return object.contains(name) ? object[name].get<std::string>() : "";
}

// What is there as `found` has it, or why it is not.
std::string found_or_why(const nlohmann::ordered_json& part, const std::string& found) {
    return part["found"] ? found : text(part, "why_not");
}

std::string joined(const nlohmann::ordered_json& list) {
    return fmt::format("{}", fmt::join(list.get<std::vector<std::string>>(), ", "));
}

void print_cuda(const nlohmann::ordered_json& cuda) {
    const auto& driver = cuda["driver"];
    fmt::print("CUDA driver       {}\n",
               found_or_why(driver, fmt::format("{}, serves CUDA {}", text(driver, "path"), text(driver, "cuda"))));
    for (const auto& device : cuda["devices"]) {
        fmt::print("device            cuda:{}: {}, {}, {} multiprocessors, {} of shared memory a block, {} of L2\n",
                   device["ordinal"].get<int>(), text(device, "name"), text(device, "target"),
                   device["multiprocessors"].get<int>(),
                   format_bytes(device["shared_memory_per_block"].get<std::uint64_t>()),
                   format_bytes(device["l2_bytes"].get<std::uint64_t>()));
        if (!text(device, "note").empty()) fmt::print("                  {}\n", text(device, "note"));
    }
    const auto& nvrtc = cuda["nvrtc"];
    fmt::print("NVRTC             {}\n",
               found_or_why(nvrtc, fmt::format("{}, version {}", text(nvrtc, "path"), text(nvrtc, "version"))));
    if (nvrtc["found"]) fmt::print("  compiles for    {}\n", joined(nvrtc["targets"]));
    fmt::print("  looked in       {}\n", joined(nvrtc["looked"]));
    const auto& cache = cuda["cache"];
    fmt::print("kernel cache      {}: {} kernels, {} of at most {}{}\n", text(cache, "folder"),
               cache["kernels"].get<std::uint64_t>(), format_bytes(cache["bytes"].get<std::uint64_t>()),
               format_bytes(cache["limit"].get<std::uint64_t>()),
               text(cache, "why_not").empty() ? "" : "; not used: " + text(cache, "why_not"));
    const auto& choices = cuda["choices"];
    fmt::print("measured tiles    {}: {}{}\n", text(choices, "file"), choices["list"].size(),
               text(choices, "why_not").empty() ? "" : "; not used: " + text(choices, "why_not"));
    for (const auto& bundle : cuda["bundles"]) {
        if (bundle.contains("why_not"))
            fmt::print("bundle            {}\n", text(bundle, "why_not"));
        else
            fmt::print("bundle            {}: {} kernels for {}{}\n", text(bundle, "path"),
                       bundle["kernels"].get<std::uint64_t>(), joined(bundle["targets"]),
                       bundle["damaged"] == 0
                           ? ""
                           : fmt::format("; {} of them are damaged", bundle["damaged"].get<std::uint64_t>()));
    }
}

void print(const nlohmann::ordered_json& info) {
    const auto& cpu = info["devices"][0];
    std::vector<std::string> available, missing, chosen;
    for (const auto& set : info["isas"])
        if (set["available"])
            available.push_back(set["name"]);
        else
            missing.push_back(fmt::format("{} ({})", text(set, "name"), text(set, "why_not")));
    for (const auto& [type, set] : info["chosen"].items()) chosen.push_back(type + " " + set.get<std::string>());
    fmt::print("flashtile {}\n\n", info["version"].get<std::string>());
    fmt::print("device            cpu: {}\n", cpu["name"].get<std::string>());
    fmt::print("threads           {}\n", cpu["threads"].get<int>());
    fmt::print("memory available  {}\n", format_bytes(cpu["memory_available"].get<std::uint64_t>()));
    fmt::print("features          {}\n", fmt::join(cpu["features"].get<std::vector<std::string>>(), " "));
    fmt::print("instruction sets  {}\n", fmt::join(available, ", "));
    if (!missing.empty()) fmt::print("not used          {}\n", fmt::join(missing, ", "));
    fmt::print("chosen            {}\n\n", fmt::join(chosen, ", "));
    print_cuda(info["cuda"]);
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("info", "Devices, instruction sets and defaults");
    command->footer(examples);
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    auto plan = std::make_shared<PlanArguments>();
    add_plan_flags(*command, *plan);
    command->callback([json, plan, &exit_code] {
        exit_code = exit_ok;
        if (plan->wanted) {
            print_plan(*plan, *json);
            return;
        }
        const auto info = gather();
        if (*json)
            fmt::print("{}\n", info.dump(2));
        else
            print(info);
    });
}

}  // namespace flashtile::cli
