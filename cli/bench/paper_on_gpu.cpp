// paper_on_gpu.cpp: see paper_on_gpu.h.
#include "bench/paper_on_gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "bench/on_gpu.h"
#include "bench/plot.h"
#include "bench/python.h"
#include "bench_cuda/paper.h"
#include "commands.h"

namespace flashtile::cli::bench {
namespace {

constexpr const char* page_tool = "plot_paper.py";
constexpr double torch_share = 0.5;  // of the time, for PyTorch's part

bool has(const char* condition) {
    return succeeds({python_interpreter(), "-c", condition}, true);
}

void check(const Options& options) {
    if (options.work.size() != 1)
        throw std::invalid_argument("work is paper beside others, allowed is paper alone or others");
    refuse_those_of_cpus(options);
    refuse_on_gpu(options.batch != 0, "--batch");
    refuse_on_gpu(!options.json.empty(), "--json");
    refuse_on_gpu(!options.plot.empty(), "--plot");
    if (options.dtypes.front() == "fp32")
        throw std::invalid_argument("--dtype is fp32, allowed for paper on --device=cuda are fp16 and bf16");
    for (const std::string& peer : options.against)
        if (peer != "torch")
            throw std::invalid_argument(fmt::format("--against is {}, allowed for paper on --device=cuda is torch",
                                                    fmt::join(options.against, ",")));
}

bench_cuda::PaperOptions paper_options(const Options& options, double seconds) {
    return {.grid = {.head_dims = options.head_dims,
                     .seqlens = options.seqlens,
                     .fp16 = options.dtypes.front() == "fp16",
                     .tokens = options.tokens,
                     .heads = options.heads,
                     .json = ""},
            .folder = options.folder,
            .seconds = seconds};
}

int run_torch(const Options& options, double seconds) {
    Options torch = options;
    torch.work = {"forward", "backward"};
    torch.causal = "both";
    torch.minutes = seconds / 60.0;
    torch.json = options.folder + "/torch.json";
    torch.against = {"torch"};
    return run_on_gpu(torch, {"--rounds=1"});  // so that the time reaches short sequences too
}

}  // namespace

int run_paper_on_gpu(const Options& given) {
    check(given);
    Options options = given;
    if (options.minutes <= 0.0) options.minutes = 2.0;
    const bool torch = has("import sys, torch; sys.exit(not torch.cuda.is_available())");
    if (!torch && !options.against.empty())
        throw std::runtime_error(
            fmt::format("--against is torch, and {} has none that sees a GPU", python_interpreter()));
    const double seconds = 60.0 * options.minutes, of_torch = torch ? torch_share * seconds : 0.0;
    int exit_code = bench_cuda::run_paper(paper_options(options, seconds - of_torch));
    if (torch)
        exit_code = std::max(exit_code, run_torch(options, of_torch));
    else
        fmt::print("left out: torch: {} has none that sees a GPU\n", python_interpreter());
    if (!has("import matplotlib")) {
        fmt::print("no matplotlib here: elsewhere, tools/{} {} draws the figures and the page\n", page_tool,
                   options.folder);
        return exit_code;
    }
    if (!succeeds({python_interpreter(), tool_path(page_tool), options.folder}, false))
        throw std::runtime_error(fmt::format("the figures of {} could not be drawn", options.folder));
    fmt::print("page: {}/index.html\n", options.folder);
    return exit_code;
}

}  // namespace flashtile::cli::bench
