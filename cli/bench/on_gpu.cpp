// on_gpu.cpp: see on_gpu.h.
#include "bench/on_gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <stdexcept>

#include "bench/python.h"
#include "bench_cuda/once.h"
#include "bench_cuda/run.h"
#include "commands.h"

namespace flashtile::cli::bench {
namespace {

// The shared library that this program runs, which Python then loads.
std::string library_path() {
    Dl_info found{};
    const std::string path =
        dladdr(reinterpret_cast<void*>(&flashtile_version), &found) != 0 ? found.dli_fname : "nothing";
    if (path.find(".so") == std::string::npos)
        throw std::runtime_error("--device=cuda needs flashtile as a shared library, and this program has it built in");
    return std::filesystem::canonical(path).string();
}

}  // namespace

void refuse_on_gpu(bool given, const char* option) {
    if (given) throw std::invalid_argument(fmt::format("{} is given, and --device=cuda has no use for it", option));
}

void refuse_those_of_cpus(const Options& options) {
    refuse_on_gpu(!options.threads.empty(), "--threads");
    refuse_on_gpu(options.isa != "auto", "--isa");
    refuse_on_gpu(options.kv_heads != 0, "--kv-heads");
    if (options.dtypes.size() != 1)
        throw std::invalid_argument(
            fmt::format("--dtype is {}, allowed on --device=cuda is one type", fmt::join(options.dtypes, ",")));
}

std::vector<std::string> gpu_arguments(const Options& options) {
    refuse_those_of_cpus(options);
    const auto work = options.work.empty() ? std::vector<std::string>{"forward", "backward", "both"} : options.work;
    std::vector<std::string> arguments = {
        fmt::format("--work={}", fmt::join(work, ",")), fmt::format("--head-dim={}", fmt::join(options.head_dims, ",")),
        fmt::format("--causal={}", options.causal), fmt::format("--dtype={}", options.dtypes.front()),
        fmt::format("--tokens={}", options.tokens)};
    if (!others(options).empty() || wants(options, "openvino"))
        throw std::invalid_argument(
            fmt::format("--against is {}, allowed on --device=cuda is torch", fmt::join(options.against, ",")));
    if (options.against.empty()) arguments.emplace_back("--methods=flashtile");
    if (!options.seqlens.empty()) arguments.push_back(fmt::format("--seqlen={}", fmt::join(options.seqlens, ",")));
    if (options.heads != 0) arguments.push_back(fmt::format("--heads={}", options.heads));
    if (options.batch != 0) arguments.push_back(fmt::format("--batch={}", options.batch));
    if (options.minutes > 0.0) arguments.push_back(fmt::format("--seconds={}", 60.0 * options.minutes));
    if (!options.json.empty()) arguments.push_back("--json=" + options.json);
    if (!options.plot.empty()) arguments.push_back("--plot=" + options.plot);
    return arguments;
}

int run_on_gpu(const Options& options, const std::vector<std::string>& more) {
    std::vector<std::string> command = gpu_arguments(options);
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.begin(), {python_interpreter(), tool_path("gpu_bench.py"), "--library=" + library_path()});
    std::fflush(stdout);
    switch (exit_code_of(command)) {
        case 0:
            return exit_ok;
        case 1:
            return exit_wrong_result;
        default:
            return exit_usage;
    }
}

bool wants_baselines(const Options& options) {
    return std::ranges::count(options.work, "baselines") > 0;
}

int run_baselines(const Options& options) {
    if (options.device != "cuda" || options.work.size() != 1)
        throw std::invalid_argument("work is baselines, which goes with --device=cuda and no other work");
    refuse_those_of_cpus(options);
    if (!options.against.empty()) throw std::invalid_argument("--against is given, and baselines has no use for it");
    if (!options.plot.empty()) throw std::invalid_argument("--plot is given, and baselines has no use for it");
    if (options.batch != 0) throw std::invalid_argument("--batch is given, and baselines has no use for it");
    if (options.dtypes.front() == "fp32")
        throw std::invalid_argument("--dtype is fp32, allowed for baselines are fp16 and bf16");
    bench_cuda::Options wanted{.head_dims = options.head_dims,
                               .seqlens = options.seqlens,
                               .causal = options.causal,
                               .fp16 = options.dtypes.front() == "fp16",
                               .tokens = options.tokens,
                               .heads = options.heads,
                               .json = options.json};
    if (options.minutes > 0.0) wanted.most_seconds = 60.0 * options.minutes;
    return options.once.empty() ? bench_cuda::run(wanted) : bench_cuda::run_once(wanted, options.once);
}

}  // namespace flashtile::cli::bench
