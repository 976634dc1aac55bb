// compile_baselines.cpp: compiles the kernels of the baselines on a GPU with NVRTC, for Ampere and Hopper, on no GPU,
// and reads what ptxas says of each. Fails where one spills registers or draws a warning.
//
//   flashtile_compile_baselines [--all [80|90]]
//
// Without --all a handful: heads of 128, where registers are fewest, each switch alone and all of them.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "baselines/cuda/kernel_texts.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/program.h"
#include "cuda/kernel_names.h"

namespace flashtile::gpu_baselines {
namespace {

// By their whole text, since several are made of one kernel.
using Texts = std::map<std::string, KernelText>;

void add_texts(Texts& texts, std::int64_t head_dim, bool causal, Element element, bool all) {
    const Shape shape{.batch = 1,
                      .seqlen_q = 1,
                      .seqlen_k = 1,
                      .heads = 1,
                      .kv_heads = 1,
                      .head_dim = head_dim,
                      .causal = causal,
                      .scale = 1.0f};
    const auto add = [&](const std::vector<KernelText>& list) {
        for (const KernelText& text : list) texts.emplace(text.whole(), text);
    };
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    add(standard_texts(shape, element, Passes::both));
    for (unsigned n = 0; n < 8; ++n) {
        if (!all && std::popcount(n) == 2) continue;
        const WorkPartition ways{(n & 1) != 0, (n & 2) != 0, (n & 4) != 0};
        const TileChoices choices = flash_attention_1_tiles(head_dim, ways, device);
        for (const gpu::Tile& forward : choices.forward)
            for (const gpu::Tile& backward : choices.backward)
                add(flash_attention_1_texts(shape, element, Passes::both, ways, {forward, backward}));
    }
}

int run(bool all, int only_architecture) {
    Texts texts;
    add_texts(texts, 128, true, Element::bf16, all);
    if (all)
        for (const std::int64_t head_dim : {64, 128})
            for (const bool causal : {false, true})
                for (const Element element : {Element::fp16, Element::bf16})
                    add_texts(texts, head_dim, causal, element, all);
    int failed = 0, compiled = 0;
    for (const int architecture : {80, 90})
        for (const auto& [whole, text] : texts) {
            if (only_architecture != 0 && only_architecture != architecture) continue;
            const gpu::CompilerReport report = gpu::read_report(compile(text, architecture, true).log);
            std::printf("%s %3d registers, %d bytes of stack, %d spilled  %s %s d=%d %dx%d %s\n",
                        report.clean() ? "ok    " : "FAILED", report.registers, report.stack_bytes, report.spill_bytes,
                        gpu::target_name(architecture).c_str(), gpu::name_of(text.config.element), text.config.head_dim,
                        text.config.Br, text.config.Bc, text.function.c_str());
            for (const std::string& warning : report.warnings) std::printf("    %s\n", warning.c_str());
            std::fflush(stdout);
            failed += report.clean() ? 0 : 1;
            ++compiled;
        }
    std::printf("%d kernels, %d failed\n", compiled, failed);
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace flashtile::gpu_baselines

int main(int argc, char** argv) {
    try {
        return flashtile::gpu_baselines::run(argc > 1 && argv[1] == std::string_view("--all"),
                                             argc > 2 ? std::atoi(argv[2]) : 0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_compile_baselines: %s\n", e.what());
        return 2;
    }
}
