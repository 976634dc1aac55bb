// once.cpp: see once.h.
#include "bench_cuda/once.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "bench_cuda/methods.h"

namespace flashtile::cli::bench_cuda {

int run_once(const Options& options, const std::string& what) {
    const std::string pass_name = what.substr(0, what.find(':'));
    const bool backward = pass_name == name_of(Pass::backward);
    const Pass pass = backward ? Pass::backward : Pass::forward;
    const Element element = options.fp16 ? Element::fp16 : Element::bf16;
    const Shape shape = grid(options).front();
    const std::vector<Method> methods = methods_for(shape, element);
    const auto named = [&](const Method& method) { return pass_name + ":" + method.name == what; };
    const auto method = std::ranges::find_if(methods, named);
    if (method == methods.end() || pass_name != name_of(pass)) {
        std::string names;
        for (const Method& each : methods) names += (names.empty() ? "" : ", ") + each.name;
        throw std::invalid_argument("--once is " + what + ", allowed is forward: or backward: and one of " + names);
    }
    Problem problem(shape, options.fp16 ? fp16 : bf16);
    const std::unique_ptr<Attention> attention = method->make(pass, 0);
    problem.results(*attention, pass);
    const std::vector<std::string>& tiles = backward ? method->backward_tiles : method->forward_tiles;
    const Blocks planned = planned_blocks(shape, element, pass);
    const std::string own = std::to_string(planned.Br) + "x" + std::to_string(planned.Bc);
    std::printf("%s d=%lld n=%lld batch=%lld heads=%lld tile=%s\n", what.c_str(),
                static_cast<long long>(shape.head_dim), static_cast<long long>(shape.seqlen_q),
                static_cast<long long>(shape.batch), static_cast<long long>(shape.heads),
                method->name == kLibrary ? own.c_str() : tiles.front().c_str());
    return 0;
}

}  // namespace flashtile::cli::bench_cuda
