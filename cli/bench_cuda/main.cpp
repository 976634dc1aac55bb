// main.cpp: `flashtile bench baselines` by itself, for machines that the build is carried to.
//
//   flashtile_bench_baselines [--seconds=20] [--most-seconds=100] [--tokens=16384] [--head-dim=64] [--seqlen=512]
//   [--causal=0]
//                             [--pass=forward] [--json=FILE]
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "bench_cuda/run.h"

int main(int argc, char** argv) {
    try {
        flashtile::cli::bench_cuda::Options options;
        for (int n = 1; n < argc; ++n) {
            const std::string word = argv[n];
            const std::size_t equals = word.find('=');
            const std::string name = word.substr(0, equals),
                              value = equals < word.size() ? word.substr(equals + 1) : "";
            if (name == "--seconds")
                options.seconds = std::stod(value);
            else if (name == "--most-seconds")
                options.most_seconds = std::stod(value);
            else if (name == "--tokens")
                options.tokens = std::stoll(value);
            else if (name == "--head-dim")
                options.head_dims = {std::stoll(value)};
            else if (name == "--seqlen")
                options.seqlens = {std::stoll(value)};
            else if (name == "--causal")
                options.causal = value;
            else if (name == "--pass")
                options.pass = value;
            else if (name == "--heads")
                options.heads = std::stoll(value);
            else if (name == "--json")
                options.json = value;
            else
                throw std::invalid_argument(word + " is no option");
        }
        return flashtile::cli::bench_cuda::run(options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_bench_baselines: %s\n", e.what());
        return 2;
    }
}
