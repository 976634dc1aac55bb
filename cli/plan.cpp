// plan.cpp: see plan.h.
#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "number_checks.h"
#include "plan_text.h"

namespace flashtile::cli {
namespace {

// A call of which nobody reads the tensors.
struct Call {
    options o;
    std::vector<flashtile_named_tensor> function_tensors;
    tensor q, k, v;
};

// Of "fp32:16x31".
std::pair<dtype, std::vector<std::int64_t>> type_and_shape(const std::string& text) {
    const auto refuse = [&] {
        throw CLI::ValidationError("--function-tensor",
                                   "has '" + text + "', allowed is a type and a shape, as fp32:16 or int32:2x4096");
    };
    const std::vector<std::pair<const char*, dtype>> types = {{"fp32", fp32},    {"fp16", fp16},
                                                              {"bf16", bf16},    {"int32", dtype::int32},
                                                              {"bool", boolean}, {"int64", dtype::int64}};
    const std::size_t colon = text.find(':');
    const auto type = std::ranges::find(types, text.substr(0, colon), &std::pair<const char*, dtype>::first);
    if (colon == std::string::npos || type == types.end()) refuse();
    std::vector<std::int64_t> shape;
    const char *at = text.data() + colon, *const end = text.data() + text.size();
    while (at != end) {  // at what comes before a number: the colon or an x
        const auto [next, error] = std::from_chars(at + 1, end, shape.emplace_back());
        if (error != std::errc() || shape.back() < 0 || (next != end && *next != 'x')) refuse();
        at = next;
    }
    return {type->second, shape};
}

Call call_of(const PlanArguments& a) {
    const device where = a.attention.device == "cpu" ? cpu : cuda(a.device);
    ShapeOptions s = a.shape;
    s.complete();
    const dtype type = a.attention.dtype.empty() ? bf16 : parse_dtype(a.attention.dtype);
    // The address says only that it is as aligned as an allocation.
    const auto somewhere = [&](dtype of, const std::vector<std::int64_t>& shape) {
        return view(std::bit_cast<void*>(std::uintptr_t{256}), of, shape, where);
    };
    const dtype keys_type = a.e4m3.present() ? fp8_e4m3 : type;
    const dtype queries_type = a.e4m3.keys_only() ? type : keys_type;
    const auto rows = [&](dtype of, std::int64_t length, std::int64_t heads, std::int64_t columns) {
        return a.packed ? somewhere(of, {s.batch * length, heads, columns})
                        : somewhere(of, {s.batch, length, heads, columns});
    };
    options o = a.attention.to_options();
    o.deterministic = a.deterministic;
    o.batch_invariant = a.batch_invariant;
    o.exact_max = a.exact_max;
    if (a.packed) {
        o.cu_seqlens_q = somewhere(dtype::int32, {s.batch + 1});
        if (a.page_size == 0) o.cu_seqlens_k = o.cu_seqlens_q;
        o.max_seqlen_q = s.seqlen_q;
        o.max_seqlen_k = s.seqlen_k;
    }
    const std::int64_t pages = a.page_size == 0 ? 0 : (s.seqlen_k + a.page_size - 1) / a.page_size;
    if (a.page_size != 0) {
        o.block_table = somewhere(dtype::int32, {s.batch, pages});
        o.max_seqlen_k = s.seqlen_k;
    }
    const auto keys = [&](std::int64_t columns) {
        return a.page_size == 0 ? rows(keys_type, s.seqlen_k, s.kv_heads, columns)
                                : somewhere(keys_type, {s.batch * pages, a.page_size, s.kv_heads, columns});
    };
    // So many scales of `rows` rows each of a head, where that is what scales are for.
    const auto scale = [&](std::int64_t outer, std::int64_t length, std::int64_t heads, bool packed) {
        if (!a.e4m3.present() || a.e4m3.scales == "none") return tensor();
        if (a.e4m3.scales == "tensor") return somewhere(fp32, {});
        if (a.e4m3.scales == "head") return somewhere(fp32, {s.batch, s.kv_heads});
        o.scale_block = a.e4m3.block;
        const std::int64_t blocks = (length + o.scale_block - 1) / o.scale_block;
        return packed ? somewhere(fp32, {heads, outer * blocks}) : somewhere(fp32, {outer, heads, blocks});
    };
    if (!a.e4m3.keys_only()) o.q_scale = scale(s.batch, s.seqlen_q, s.heads, a.packed);
    o.k_scale = o.v_scale = a.page_size == 0 ? scale(s.batch, s.seqlen_k, s.kv_heads, a.packed)
                                             : scale(s.batch * pages, a.page_size, s.kv_heads, false);
    if (a.seqused) o.seqused_k = somewhere(dtype::int32, {s.batch});
    if (a.diagonals) o.diagonals = somewhere(dtype::int64, {s.batch});
    if (a.origins) o.origins_i = o.origins_j = somewhere(dtype::int64, {s.batch});
    a.functions.set(o);
    std::vector<flashtile_named_tensor> function_tensors;
    for (const auto& [name, what] : a.functions.tensors) {
        const auto [of, shape] = type_and_shape(what);
        function_tensors.push_back(named(name.c_str(), somewhere(of, shape)));
    }
    o.function_tensors = function_tensors;  // whose elements stay where they are
    if (a.alibi) o.alibi_slopes = somewhere(fp32, {s.heads});
    if (a.bias) o.bias = somewhere(queries_type == fp8_e4m3 ? fp32 : type, {s.seqlen_q, s.seqlen_k});
    if (a.mask) o.mask = somewhere(boolean, {s.seqlen_q, s.seqlen_k});
    return {o, std::move(function_tensors), rows(queries_type, s.seqlen_q, s.heads, s.head_dim), keys(s.head_dim),
            keys(s.head_dim_v)};
}

nlohmann::ordered_json answer(const runnable& pass) {
    return pass ? nlohmann::ordered_json{{"on", pass.on}} : nlohmann::ordered_json{{"why_not", pass.why_not}};
}

nlohmann::ordered_json can_run(const Call& c) {
    return {{"forward", answer(can_run_forward(c.o, c.q, c.k, c.v))},
            {"backward", answer(can_run_backward(c.o, c.q, c.k, c.v))}};
}

// By device, of those that are asked: the one that is wanted, or else CUDA, and the CPU where that runs neither pass.
// Settles which one is wanted.
nlohmann::ordered_json can_run_here(PlanArguments& a) {
    std::string& wanted = a.attention.device;
    nlohmann::ordered_json answers;
    if (wanted.empty()) {
        const nlohmann::ordered_json& on_gpu = answers["cuda"] = can_run(call_of(a));
        wanted = on_gpu["forward"].contains("on") || on_gpu["backward"].contains("on") ? "cuda" : "cpu";
    }
    if (!answers.contains(wanted)) answers[wanted] = can_run(call_of(a));
    return answers;
}

}  // namespace

void add_plan_flags(CLI::App& command, PlanArguments& a) {
    const std::string group = "With --plan";
    CLI::Option* plan = command.add_flag("--plan", a.wanted, "How a problem runs, and why so: kernels, tiles, threads");
    CLI::App& flags = *command.add_option_group(group);
    a.shape.add_to(flags, "");
    a.attention.add_scores_to(flags);
    a.functions.add_texts_to(flags);
    a.functions.add_tensors_to(flags, "TYPE:SHAPE", "A tensor that they name, as slope=fp32:16 or doc=int32:2x4096");
    a.attention.add_dropout_to(flags);
    a.attention.add_dtype_to(flags);
    a.attention.add_serving_to(flags);
    a.attention.add_shard_to(flags);
    a.attention.add_execution_to(flags);
    a.e4m3.add_to(flags);
    flags.add_flag("--packed", a.packed, "Packed batches: cumulative lengths");
    flags.add_option("--page-size", a.page_size, "Keys in pages of so many rows")->check(at_least_1)->type_name("N");
    flags.add_flag("--seqused,--seqused-k", a.seqused, "Keys shortened per sequence");
    flags.add_flag("--diagonals", a.diagonals, "A diagonal for each sequence");
    flags.add_flag("--origins", a.origins, "Likewise an origin, of queries and of keys");
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
    const Call c = call_of(a);
    return plan_report(c.o, c.q, c.k, c.v, a.device_name.empty() ? std::nullopt : std::optional(a.device_name),
                       !a.no_registers);
}

void print_plan(PlanArguments arguments, bool json) {
    nlohmann::ordered_json report;
    if (arguments.device_name.empty()) report["can_run"] = can_run_here(arguments);
    report.update(nlohmann::ordered_json::parse(plan_report_of(arguments)));
    if (json)
        fmt::print("{}\n", report.dump(2));
    else
        print_plan_text(report);
}

}  // namespace flashtile::cli
