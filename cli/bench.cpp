// bench.cpp: the `bench` subcommand: its options and its help. The work is in cli/bench.
#include <memory>

#include "attention_names.h"
#include "bench/decode.h"
#include "bench/functions.h"
#include "bench/method.h"
#include "bench/on_gpu.h"
#include "bench/options.h"
#include "bench/paper.h"
#include "bench/paper_on_gpu.h"
#include "bench/run.h"
#include "commands.h"
#include "number_checks.h"

namespace flashtile::cli {
namespace {

constexpr const char* description = "Measure speed and memory on the FlashAttention-2 paper's grid, and compare";

constexpr const char* examples = R"(Examples:
  flashtile bench forward --tokens=4096                        a grid for a small machine
  flashtile bench both --against=torch --plot=figure4.png      the paper's Figure 4 on this machine
  flashtile bench backward --dtype=bf16 --head-dim=128 --seqlen=2048,8192 --heads=8 --batch=1 --threads=1,2
  flashtile bench memory                                       extra memory against sequence length
  flashtile bench forward memory --against=flash1              the first FlashAttention beside it
  flashtile bench decode --against=torch                       one query on 32/8 heads, beyond the last-level cache and in it
  flashtile bench decode --kv-heads=1 --dtype=fp32,bf16 --page-size=0,16
  flashtile bench functions --threads=1,2                      score and mask functions beside built-in options
  flashtile bench forward backward --device=cuda --against=torch --head-dim=64,128,256
  flashtile bench forward --against=torch,openvino             the best CPU peers beside it
  flashtile bench paper --minutes=5 --folder=paper             the papers' figures and tables on this machine, as a page
  flashtile bench baselines --device=cuda                      what each change of FlashAttention-2 brought on this GPU

Without a flag the grid is the paper's: hidden dimension 2048, 16384 tokens in all, sequence lengths 512 to 16384.
Each speed's FLOPs are 4 * seqlen^2 * head_dim * heads * batch, halved when causal, 2.5 times that for backward.
The ceiling column is the share of this machine's multiply-add peak just before and after each sample, the median
over samples: on a shared machine the peak changes by the second. Every result is compared with standard attention's
before its speed is shown.
decode: its speed is bytes of K and V a second, its ceiling what all threads read from a buffer of the same size, between
samples; its results are compared with attention in double. --seqlen is keys. functions: forward and backward of score
and mask functions, in turns with the option, packed batch or dense attention that each stands for. baselines: standard attention and
FlashAttention with each of FlashAttention-2's changes, compiled as flashtile's kernels are; no PyTorch.
paper: Figures 4 to 7 of the FlashAttention-2 paper, Figures 2 and 3 and the memory tables of the first, and what a causal
mask gains, on the CPU, beside all peers that are installed; --tokens is 2048 there, and a sequence if that is longer. It
keeps to --minutes (5), shortest sequences first, and says what it left out.
Exit codes: 0 ok, 1 a result was wrong, 2 usage.)";

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<bench::Options>();
    CLI::App* command = app.add_subcommand("bench", description);
    command->footer(examples);
    command
        ->add_option("work", options->work,
                     "forward, backward, both (in one timing), memory; default the first three; or decode; or "
                     "functions; or baselines; or paper")
        ->check(CLI::IsMember({"forward", "backward", "both", "memory", "decode", "functions", "baselines", "paper"}));
    auto* head_dim = command->add_option("--head-dim", options->head_dims, "head dimensions; of decode 128")
                         ->delimiter(',')
                         ->check(CLI::Range(1, FLASHTILE_MAX_HEAD_DIM_V))
                         ->capture_default_str();
    command->add_option("--seqlen", options->seqlens, "sequence lengths; default 512, 1024 .. up to --tokens")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 24));
    auto* causal = command->add_option("--causal", options->causal, "0, 1 or both")
                       ->check(CLI::IsMember({"0", "1", "both"}))
                       ->capture_default_str();
    auto* dtype = command->add_option("--dtype", options->dtypes, "fp32, fp16, bf16; on a GPU one, by default bf16")
                      ->delimiter(',')
                      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
                      ->capture_default_str();
    auto* tokens = command->add_option("--tokens", options->tokens, "tokens in all: scales the grid to the machine")
                       ->check(CLI::Range(1, 1 << 24))
                       ->capture_default_str();
    command->add_option("--heads", options->heads, "query heads; default 2048 / head dimension, of decode 32")
        ->check(CLI::Range(1, 1 << 16));
    command->add_option("--kv-heads", options->kv_heads, "key heads; default as --heads, of decode 8")
        ->check(CLI::Range(1, 1 << 16));
    command->add_option("--batch", options->batch, "sequences; default tokens / sequence length, of decode 1")
        ->check(CLI::Range(1, 1 << 20));
    command->add_option("--threads", options->threads, "thread counts; default all CPUs")
        ->delimiter(',')
        ->check(CLI::Range(1, FLASHTILE_MAX_THREADS));
    command->add_option("--isa", options->isa, "flashtile's instruction set; default the best")
        ->check(CLI::IsMember(instruction_set_names()));
    command->add_option("--device", options->device, "cpu, or cuda: by tools/gpu_bench.py, which needs PyTorch")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    std::vector<std::string> peers = bench::other_method_names();
    peers.insert(peers.end(), bench::peer_names().begin(), bench::peer_names().end());
    command
        ->add_option("--against", options->against,
                     "also measure torch or openvino: their attention, in a child process; or algorithms of the papers")
        ->delimiter(',')
        ->check(CLI::IsMember(peers));
    auto* queries = command->add_option("--queries", options->queries, "of decode: queries a sequence; default 1")
                        ->check(CLI::Range(1, 1 << 10));
    auto* pages = command->add_option("--page-size", options->page_sizes, "of decode: rows of a page; 0 is dense")
                      ->delimiter(',')
                      ->check(CLI::Range(0, 1 << 20));
    auto* repeats = command
                        ->add_option("--repeats", options->repeats,
                                     "samples of each method, of which the median counts; of paper 3")
                        ->check(CLI::Range(1, 10000))
                        ->capture_default_str();
    command->add_option("--minutes,--budget", options->minutes, "take fewer samples, to end after about this time")
        ->check(above_0);
    command->add_option("--json", options->json, "write the results to this file");
    auto* folder =
        command->add_option("--folder", options->folder, "of paper: where its files go")->capture_default_str();
    auto* once = command->add_option("--once", options->once,
                                     "of baselines: forward:METHOD or backward:METHOD, not timed, for a profiler");
    command->add_option("--plot", options->plot, "draw speeds as the paper's Figure 4 into this PNG file");

    command->callback([=, &exit_code] {
        const bool decode = bench::wants_decode(*options);
        for (const CLI::Option* flag : {causal, tokens, queries, pages})
            if (flag->count() != 0 && decode != (flag == queries || flag == pages))
                throw CLI::ValidationError(flag->get_name(), decode ? "is given, and decode has no use for it"
                                                                    : "is given, and only decode has a use for it");
        const bool paper = bench::wants_paper(*options);
        if (folder->count() != 0 && !paper)
            throw CLI::ValidationError("--folder", "is given, and only paper has a use for it");
        if (paper) {
            if (causal->count() != 0) throw CLI::ValidationError("--causal", "is given, and paper has no use for it");
            const bool on_gpu = options->device == "cuda";
            if (on_gpu && dtype->count() == 0) options->dtypes = {"bf16"};
            if (!on_gpu && tokens->count() == 0) options->tokens = 2048;
            if (repeats->count() == 0) options->repeats = 3;
            exit_code = on_gpu ? bench::run_paper_on_gpu(*options) : bench::run_paper(*options);
            return;
        }
        if (decode) {
            if (head_dim->count() == 0) options->head_dims = {128};
            exit_code = bench::run_decode(*options);
            return;
        }
        if (bench::wants_functions(*options)) {
            if (head_dim->count() == 0) options->head_dims = {64};
            exit_code = bench::run_functions(*options);
            return;
        }
        if (once->count() != 0 && !bench::wants_baselines(*options))
            throw CLI::ValidationError("--once", "is given, and only baselines has a use for it");
        const bool on_gpu = options->device == "cuda";
        const bool baselines = bench::wants_baselines(*options);
        if ((on_gpu || baselines) && dtype->count() == 0) options->dtypes = {"bf16"};
        exit_code = baselines ? bench::run_baselines(*options)
                    : on_gpu  ? bench::run_on_gpu(*options)
                              : bench::run(*options);
    });
}

}  // namespace flashtile::cli
