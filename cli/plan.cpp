// plan.cpp: see plan.h.
#include "plan.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "available_memory.h"

namespace flashtile::cli {
namespace {

// A contiguous tensor on the GPU. Nothing is read there: the address says only that it is as aligned as an allocation.
tensor somewhere_on(int ordinal, dtype type, const std::vector<std::int64_t>& shape) {
    return view(std::bit_cast<void*>(std::uintptr_t{256}), type, shape, cuda(ordinal));
}

void print_kernel(const nlohmann::ordered_json& kernel) {
    const auto number = [&](const char* name) { return kernel[name].get<std::int64_t>(); };
    const auto text = [&](const char* name) { return kernel[name].get<std::string>(); };
    fmt::print("  {}\n", text("kernel"));
    fmt::print("    tile            {} queries x {} keys: {}\n", number("Br"), number("Bc"), text("why"));
    fmt::print("    thread blocks   {}, of {} warps\n", number("blocks"), number("warps"));
    if (number("value_slices") > 1) fmt::print("    columns of O    in {} slices\n", number("value_slices"));
    if (number("shared_memory") > 0)
        fmt::print("    shared memory   {} a block, {} {}\n",
                   format_bytes(static_cast<std::uint64_t>(number("shared_memory"))), number("stages"),
                   number("stages") == 1 ? "stage" : "stages");
    fmt::print("    loads           {} bytes each\n", number("vector_bytes"));
    if (kernel.contains("registers"))
        fmt::print("    registers       {} a thread, {} bytes spilled\n", number("registers"), number("spilled_bytes"));
}

void print_pass(const char* title, const nlohmann::ordered_json& pass) {
    fmt::print("\n{}\n", title);
    if (pass.contains("why_not")) fmt::print("  none: {}\n", pass["why_not"].get<std::string>());
    if (!pass.contains("kernels")) return;
    for (const auto& kernel : pass["kernels"]) print_kernel(kernel);
    for (const auto& [name, reason] : pass["passed_over"].items())
        fmt::print("  passed over       {}: {}\n", name, reason.get<std::string>());
    if (const auto bytes = pass["workspace"].get<std::uint64_t>(); bytes > 0)
        fmt::print("  workspace         {}\n", format_bytes(bytes));
}

}  // namespace

void add_plan_flags(CLI::App& command, PlanArguments& a) {
    const std::string group = "With --plan";
    CLI::Option* plan = command.add_flag("--plan", a.wanted, "Which CUDA kernels a problem gets, and why");
    CLI::App& flags = *command.add_option_group(group);
    a.shape.add_to(flags, "");
    a.attention.add_scores_to(flags);
    a.attention.add_dropout_to(flags);
    a.attention.add_dtype_to(flags);
    flags.add_flag("--packed", a.packed, "Packed batches: cumulative lengths");
    flags.add_flag("--seqused", a.seqused, "Keys shortened per sequence");
    flags.add_flag("--alibi", a.alibi);
    flags.add_flag("--bias", a.bias, "A bias with a gradient");
    flags.add_flag("--mask", a.mask, "A boolean mask");
    flags.add_flag("--deterministic", a.deterministic);
    flags.add_flag("--batch-invariant", a.batch_invariant);
    flags.add_flag("--exact-max", a.exact_max);
    flags.add_flag("--no-registers", a.no_registers, "Do not compile the kernels to see what registers they take");
    flags.add_option("--device-name", a.device_name, "H200, A100-80, RTX4090, ... (default: the GPU that is here)")
        ->type_name("GPU");
    for (CLI::Option* flag : flags.get_options()) flag->needs(plan);
}

std::string plan_report_of(const PlanArguments& a) {
    ShapeOptions s = a.shape;
    s.complete();
    const dtype type = a.attention.dtype.empty() ? bf16 : parse_dtype(a.attention.dtype);
    const auto somewhere = [&](dtype of, const std::vector<std::int64_t>& shape) {
        return somewhere_on(a.device, of, shape);
    };
    const auto rows = [&](std::int64_t length, std::int64_t heads, std::int64_t columns) {
        return a.packed ? somewhere(type, {s.batch * length, heads, columns})
                        : somewhere(type, {s.batch, length, heads, columns});
    };
    options o = a.attention.to_options();
    o.deterministic = a.deterministic;
    o.batch_invariant = a.batch_invariant;
    o.exact_max = a.exact_max;
    if (a.packed) {
        o.cu_seqlens_q = o.cu_seqlens_k = somewhere(dtype::int32, {s.batch + 1});
        o.max_seqlen_q = s.seqlen_q;
        o.max_seqlen_k = s.seqlen_k;
    }
    if (a.seqused) o.seqused_k = somewhere(dtype::int32, {s.batch});
    if (a.alibi) o.alibi_slopes = somewhere(fp32, {s.heads});
    if (a.bias) o.bias = somewhere(type, {s.seqlen_q, s.seqlen_k});
    if (a.mask) o.mask = somewhere(boolean, {s.seqlen_q, s.seqlen_k});
    return plan_report(o, rows(s.seqlen_q, s.heads, s.head_dim), rows(s.seqlen_k, s.kv_heads, s.head_dim),
                       rows(s.seqlen_k, s.kv_heads, s.head_dim_v),
                       a.device_name.empty() ? std::nullopt : std::optional(a.device_name), !a.no_registers);
}

void print_plan(const PlanArguments& arguments, bool json) {
    const auto report = nlohmann::ordered_json::parse(plan_report_of(arguments));
    if (json) {
        fmt::print("{}\n", report.dump(2));
        return;
    }
    const auto text = [&](const char* name) { return report[name].get<std::string>(); };
    fmt::print("{}\non {}, {}\n", text("problem"), text("device"), text("target"));
    print_pass("forward", report["forward"]);
    print_pass("backward", report["backward"]);
    if (!text("why_no_registers").empty()) fmt::print("\nregisters unknown: {}\n", text("why_no_registers"));
}

}  // namespace flashtile::cli
