// main.cpp: `flashtile bench baselines` by itself, and with --paper the GPU's part of `flashtile bench paper`, for
// machines that the build is carried to.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench_cuda/once.h"
#include "bench_cuda/paper.h"
#include "bench_cuda/run.h"

int main(int argc, char** argv) {
    flashtile::cli::bench_cuda::Options options;
    CLI::App app("FlashAttention-2's three changes, one by one, on this machine's GPU");
    app.add_option("--seconds", options.seconds, "Of timing")->capture_default_str();
    app.add_option("--most-seconds", options.most_seconds, "After so many no other point is begun; 0: never");
    app.add_option("--tokens", options.tokens)->capture_default_str();
    app.add_option("--head-dim", options.head_dims)->delimiter(',')->capture_default_str();
    app.add_option("--seqlen", options.seqlens)->delimiter(',');
    app.add_option("--heads", options.heads, "0: a hidden dimension of 2048");
    app.add_option("--causal", options.causal)->check(CLI::IsMember({"0", "1", "both"}))->capture_default_str();
    app.add_option("--pass", options.pass)
        ->check(CLI::IsMember({"forward", "backward", "both"}))
        ->capture_default_str();
    app.add_option("--json", options.json, "The file to write");
    flashtile::cli::bench_cuda::PaperOptions paper;
    app.add_option("--paper", paper.folder, "What the papers' figures show: the folder that results.json goes to");
    double minutes = 2.0;
    app.add_option("--minutes", minutes, "Of --paper")->capture_default_str();
    std::string once;
    app.add_option("--once", once, "forward:METHOD or backward:METHOD, once and not timed, for a profiler");
    try {
        app.parse(argc, argv);
        if (!once.empty()) return flashtile::cli::bench_cuda::run_once(options, once);
        if (!paper.folder.empty()) {
            paper.grid = options;
            paper.seconds = 60.0 * minutes;
            return flashtile::cli::bench_cuda::run_paper(paper);
        }
        return flashtile::cli::bench_cuda::run(options);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_bench_baselines: %s\n", e.what());
        return 2;
    }
}
