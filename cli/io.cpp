// io.cpp: the `io` subcommand: its options and its help. The work is in cli/traffic.
#include <memory>

#include "commands.h"
#include "flags_beside.h"
#include "number_checks.h"
#include "traffic/run.h"

namespace flashtile::cli {
namespace {

constexpr const char* description = "Count what the papers' algorithms and flashtile move between slow and fast memory";

constexpr const char* examples = R"(Examples:
  flashtile io                                                 standard attention, both FlashAttentions and flashtile on the
                                                               CPU, N 512 to 16384
  flashtile io --seqlen=4096 --memory=32K,64K,128K,256K,512K,1M --dtype=fp32
  flashtile io --pass=forward --seqlen=4096                    the numerical example: an A100's 192 KB, fp16, d 64
  flashtile io --pass=both --seqlen=1024 --heads=1024          GPT-2 medium, Figure 2 of the FlashAttention paper
  flashtile io --pass=forward --seqlen=4096,8192 --density=0.25
  flashtile io --tile=64,128 --causal --json=io.json --plot=io.png
  flashtile io --algorithm=flash2,cpu --heads=32 --kv-heads=8 --causal
  flashtile io --measured --seqlen=4096 --head-dim=128 --heads=16     what a GPU's kernels move, by Nsight Compute

counted: elements that src/baselines loads and stores, block by block; with no arithmetic, by the same walk. cpu: those that
flashtile's kernels move, compiled once more with counters and without arithmetic, in the tasks of this machine's plan.
analytic: the formulas behind the FlashAttention paper's Theorems 2 and 5, with their constants and without rounding to
whole blocks; rounding: what that may cost. docs/algorithm.md derives both, and those of cpu. N^2 d^2 / M: the lower bound
(Proposition 3), up to a constant. blocks/M: what the algorithm's blocks, or the scratch of cpu's task, take of fast memory.
Exit codes: 0 ok, 1 a count is not within the rounding, 2 usage.)";

}  // namespace

void add_io(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<traffic::Options>();
    CLI::App* command = app.add_subcommand("io", description);
    command->footer(examples);
    command->add_option("--pass", options->passes, "forward, backward, or both: their sum")
        ->delimiter(',')
        ->check(CLI::IsMember({"forward", "backward", "both"}))
        ->capture_default_str();
    command
        ->add_option("--algorithm", options->algorithms,
                     "standard, flash1, flash2; cpu: flashtile on this CPU; default: all that can be counted")
        ->delimiter(',')
        ->check(CLI::IsMember({"standard", "flash1", "flash2", "cpu"}));
    command->add_option("--seqlen", options->seqlens, "N: queries, and keys")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    command->add_option("--head-dim", options->head_dims, "d")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 16))
        ->capture_default_str();
    command->add_option("--memory", options->memories, "bytes of fast memory, K and M count 1024; default 192K")
        ->delimiter(',')
        ->transform(CLI::AsSizeValue(false));
    command->add_option("--dtype", options->dtype, "of every element")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
        ->capture_default_str();
    command->add_option("--heads", options->heads, "heads of all sequences")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
    command
        ->add_option("--kv-heads", options->kv_heads, "key heads that cpu's heads share; default: as many as --heads")
        ->check(CLI::Range(1, 1 << 24));
    command
        ->add_option("--tile", options->tile,
                     "BR,BC: rows of blocks; default by each algorithm's rule from M; cpu has its plan's")
        ->delimiter(',')
        ->expected(2)
        ->check(CLI::Range(1, 1 << 24));
    command->add_flag("--causal", options->causal, "skip the blocks that no query sees");
    command->add_option("--density", options->density, "share of the blocks that are computed, evenly spread")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    command->add_option("--json", options->json, "write the rows to this file");
    command->add_option("--plot", options->plot, "draw elements against N and against M into this PNG file");
    auto measured = std::make_shared<bool>(false);
    command->add_flag("--measured", *measured,
                      "read from the GPU's counters what its kernels move, beside the model: tools/measure_io.py");
    command->callback([=, &exit_code] {
        if (*measured)
            refuse_flags_beside(*command, "--measured", {"--seqlen", "--head-dim", "--heads", "--causal", "--json"},
                                "which runs this GPU's kernels");
        if (*measured && command->count("--seqlen") == 0) options->seqlens = {4096};
        exit_code = *measured ? traffic::run_measured(*options) : traffic::run(*options);
    });
}

}  // namespace flashtile::cli
