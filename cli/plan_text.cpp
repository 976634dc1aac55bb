// plan_text.cpp: see plan_text.h.
#include "plan_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "available_memory.h"

namespace flashtile::cli {
namespace {

std::string text(const nlohmann::ordered_json& object, const char* name) {
    return object[name].get<std::string>();
}
std::int64_t number(const nlohmann::ordered_json& object, const char* name) {
    return object[name].get<std::int64_t>();
}

void print_can_run(const nlohmann::ordered_json& answers) {
    for (const auto& [device, passes] : answers.items())
        for (const auto& [pass, answer] : passes.items())
            fmt::print(
                "{:<18}{}\n", fmt::format("{} {}", device, pass),
                answer.contains("on") ? "runs: " + text(answer, "on") : "cannot run: " + text(answer, "why_not"));
    fmt::print("\n");
}

void print_cuda_kernel(const nlohmann::ordered_json& kernel) {
    if (number(kernel, "Bc") > 0)
        fmt::print("    tile            {} queries x {} keys: {}\n", number(kernel, "Br"), number(kernel, "Bc"),
                   text(kernel, "why"));
    else
        fmt::print("    why             {}\n", text(kernel, "why"));
    fmt::print("    thread blocks   {}, of {} warps\n", number(kernel, "blocks"), number(kernel, "warps"));
    if (number(kernel, "value_slices") > 1)
        fmt::print("    columns of O    in {} slices\n", number(kernel, "value_slices"));
    if (number(kernel, "shared_memory") > 0)
        fmt::print("    shared memory   {} a block, {} {}\n",
                   format_bytes(static_cast<std::uint64_t>(number(kernel, "shared_memory"))), number(kernel, "stages"),
                   number(kernel, "stages") == 1 ? "stage" : "stages");
    if (number(kernel, "vector_bytes") > 0)
        fmt::print("    loads           {} bytes each\n", number(kernel, "vector_bytes"));
    if (kernel.contains("registers"))
        fmt::print("    registers       {} a thread, {} bytes spilled\n", number(kernel, "registers"),
                   number(kernel, "spilled_bytes"));
}

void print_cpu_kernel(const nlohmann::ordered_json& kernel) {
    if (kernel.contains("Br"))
        fmt::print("    tile            {} queries x {} keys\n", number(kernel, "Br"), number(kernel, "Bc"));
    fmt::print("    tasks           {}{} of {} {} each: {}\n", kernel["tasks_exact"].get<bool>() ? "" : "at most ",
               number(kernel, "tasks"), number(kernel, "task_rows"), text(kernel, "rows_of"), text(kernel, "why"));
    fmt::print("    threads         {}\n", number(kernel, "threads"));
}

void print_splits(const nlohmann::ordered_json& splits) {
    const std::string for_whom = fmt::format("sequences of up to {} queries", number(splits, "queries"));
    if (splits["count_exact"].get<bool>())
        fmt::print("  splits of keys    {} of up to {} keys, for {}: {}\n", number(splits, "count"),
                   number(splits, "keys"), for_whom, text(splits, "why"));
    else
        fmt::print("  splits of keys    at most {}, the longest sequence's of up to {} keys, for {}: {}\n",
                   number(splits, "count"), number(splits, "keys"), for_whom, text(splits, "why"));
}

void print_arithmetic(const nlohmann::ordered_json& pass) {
    fmt::print("  instruction set   {}: {}\n", text(pass, "candidate"), text(pass, "why"));
    fmt::print("  products          {}: {}\n", text(pass, "arithmetic"), text(pass, "why_arithmetic"));
    if (pass.contains("tiles_from"))
        fmt::print("  tiles             win from {} keys on\n", number(pass, "tiles_from"));
}

// "3 operations and 1 load"; "" for none.
std::string work_text(const nlohmann::ordered_json& work) {
    const auto counted = [](std::int64_t count, const char* what) {
        return count == 0 ? "" : fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
    };
    const std::string operations = counted(number(work, "operations"), "operation"),
                      loads = counted(number(work, "loads"), "load");
    return operations + (operations.empty() || loads.empty() ? "" : " and ") + loads;
}

// "score function    3 operations a score, 1 load a head"
void print_functions(const nlohmann::ordered_json& functions) {
    for (const auto& [name, cost] : functions.items()) {
        std::string parts;
        for (const auto& [often, work] : cost.items())
            if (const std::string part = work_text(work); !part.empty())
                parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part,
                                     often == "a_score"   ? "a score"
                                     : often == "a_key"   ? "a key"
                                     : often == "a_query" ? "a query"
                                                          : "a head");
        fmt::print("{:<18}{}\n", name == "gradient" ? "with derivative" : name + " function",
                   parts.empty() ? "costs nothing" : parts);
    }
}

void print_pass(const char* title, const nlohmann::ordered_json& pass) {
    fmt::print("\n{}\n", title);
    if (pass.contains("why_not")) fmt::print("  none: {}\n", text(pass, "why_not"));
    const bool on_cpu = pass.contains("arithmetic");
    if (on_cpu) print_arithmetic(pass);
    if (on_cpu && pass.contains("splits") && pass["splits"].contains("keys")) print_splits(pass["splits"]);
    if (pass.contains("kernels"))
        for (const auto& kernel : pass["kernels"]) {
            fmt::print("  {}\n", text(kernel, "kernel"));
            on_cpu ? print_cpu_kernel(kernel) : print_cuda_kernel(kernel);
        }
    if (pass.contains("passed_over"))
        for (const auto& [name, reason] : pass["passed_over"].items())
            fmt::print("  passed over       {}: {}\n", name, reason.get<std::string>());
    if (pass.contains("workspace") && number(pass, "workspace") > 0)
        fmt::print("  workspace         {}\n", format_bytes(pass["workspace"].get<std::uint64_t>()));
}

}  // namespace

void print_plan_text(const nlohmann::ordered_json& report) {
    if (report.contains("can_run")) print_can_run(report["can_run"]);
    fmt::print("{}\non {}", text(report, "problem"), text(report, "device"));
    if (report.contains("target")) fmt::print(", {}", text(report, "target"));
    if (report.contains("threads"))
        fmt::print(", {} {}", number(report, "threads"), number(report, "threads") == 1 ? "thread" : "threads");
    fmt::print("\n");
    print_functions(report["functions"]);
    print_pass("forward", report["forward"]);
    print_pass("backward", report["backward"]);
    if (report.contains("why_no_registers") && !text(report, "why_no_registers").empty())
        fmt::print("\nregisters unknown: {}\n", text(report, "why_no_registers"));
}

}  // namespace flashtile::cli
