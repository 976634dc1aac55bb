// compile_baselines.cpp: compiles the kernels of the baselines on a GPU with NVRTC, for Ampere and Hopper, on no GPU,
// and reads what ptxas says of each. Fails where one spills registers or draws a warning.
//
//   flashtile_compile_baselines [HEAD_DIM]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

#include "baselines/cuda/kernel_texts.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/program.h"

namespace flashtile::gpu_baselines {
namespace {

std::vector<KernelText> texts_for(std::int64_t head_dim, bool causal, Element element) {
    const Shape shape{.batch = 1,
                      .seqlen_q = 1,
                      .seqlen_k = 1,
                      .heads = 1,
                      .kv_heads = 1,
                      .head_dim = head_dim,
                      .causal = causal,
                      .scale = 1.0f};
    std::vector<KernelText> list = standard_texts(shape, element);
    const auto add = [&](WorkPartition ways, const gpu::Tile& tile) {
        for (KernelText& text : flash_attention_1_texts(shape, element, ways, tile)) list.push_back(std::move(text));
    };
    constexpr int kOfHopper = 227 * 1024;
    for (int n = 0; n < 8; ++n) {
        const WorkPartition ways{(n & 1) != 0, (n & 2) != 0, (n & 4) != 0};
        add(ways, flash_attention_1_tile(head_dim, ways, kOfHopper));
    }
    add({true, true, true}, general_tile(head_dim));
    return list;
}

int run(int only_head_dim) {
    int failed = 0, compiled = 0;
    for (const auto& [head_dim, causal, element] :
         {std::tuple{64, true, Element::bf16}, std::tuple{128, true, Element::fp16}})
        for (const int architecture : {80, 90})
            for (const KernelText& text : texts_for(head_dim, causal, element)) {
                if (only_head_dim != 0 && only_head_dim != head_dim) continue;
                const gpu::CompilerReport report = gpu::read_report(compile(text, architecture, true).log);
                std::printf("%s %3d registers, %d bytes of stack, %d spilled  %s d=%d %dx%d %s\n",
                            report.clean() ? "ok    " : "FAILED", report.registers, report.stack_bytes,
                            report.spill_bytes, gpu::target_name(architecture).c_str(), text.config.head_dim,
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
        return flashtile::gpu_baselines::run(argc > 1 ? std::atoi(argv[1]) : 0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_compile_baselines: %s\n", e.what());
        return 2;
    }
}
