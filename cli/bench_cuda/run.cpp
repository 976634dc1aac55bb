// run.cpp: see run.h.
#include "bench_cuda/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench_cuda/report.h"

namespace flashtile::cli::bench_cuda {
namespace {

void write(const std::string& path, const nlohmann::json& result) {
    std::ofstream file(path);
    file << result.dump(1) << '\n';
    if (!file.flush()) throw std::runtime_error("--json: " + path + " could not be written");
}

}  // namespace

std::vector<Shape> grid(const Options& options) {
    constexpr std::int64_t kHidden = 2048, kShortest = 512, kLongest = 16384;
    std::vector<std::int64_t> seqlens = options.seqlens;
    if (seqlens.empty())
        for (std::int64_t n = kShortest; n <= std::min(kLongest, options.tokens); n *= 2) seqlens.push_back(n);
    std::vector<Shape> shapes;
    for (const std::int64_t d : options.head_dims)
        for (const bool causal : {false, true})
            for (const std::int64_t n : seqlens) {
                if (options.causal != "both" && causal != (options.causal == "1")) continue;
                Shape s{.batch = std::max<std::int64_t>(1, options.tokens / n), .seqlen_q = n, .seqlen_k = n};
                s.heads = s.kv_heads = options.heads != 0 ? options.heads : std::max<std::int64_t>(1, kHidden / d);
                s.head_dim = d;
                s.causal = causal;
                s.scale = 1.0f / std::sqrt(static_cast<float>(d));
                shapes.push_back(s);
            }
    return shapes;
}

int run(const Options& options) {
    const gpu::DeviceFacts& device = gpu::device(0).facts();
    const Element element = options.fp16 ? Element::fp16 : Element::bf16;
    const std::vector<Shape> shapes = grid(options);
    std::printf("%s, %s; every result is compared with standard attention's\n", device.name.c_str(),
                options.fp16 ? "fp16" : "bf16");
    const auto start = std::chrono::steady_clock::now();
    const auto seconds_since_start = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::vector<Method> methods;
    for (const Shape& shape : shapes) std::ranges::move(methods_for(shape, element), std::back_inserter(methods));
    compile_all(methods);
    std::printf("kernels compiled in %.0f s\n", seconds_since_start());

    std::vector<Pass> passes;
    for (const Pass pass : {Pass::forward, Pass::backward})
        if (options.pass == "both" || options.pass == name_of(pass)) passes.push_back(pass);
    const double seconds = options.seconds / static_cast<double>(shapes.size() * passes.size());
    std::map<Pass, std::vector<MeasuredPoint>> points;
    nlohmann::json result = {{"device", device.name}, {"dtype", options.fp16 ? "fp16" : "bf16"}};
    bool wrong = false;
    for (const Shape& shape : shapes) {
        if (options.most_seconds > 0.0 && seconds_since_start() > options.most_seconds) {
            std::printf("\nleft out, the time is over: d=%lld %s n=%lld and what follows\n",
                        static_cast<long long>(shape.head_dim), shape.causal ? "causal" : "full",
                        static_cast<long long>(shape.seqlen_q));
            break;
        }
        Problem problem(shape, options.fp16 ? fp16 : bf16);
        for (const Pass pass : passes) {
            const MeasuredPoint point{pass, shape,
                                      measure(problem, shape, methods_for(shape, element), element, pass, seconds)};
            print_point(point);
            std::fflush(stdout);
            result["points"].push_back(to_json(point));
            wrong = wrong || std::ranges::any_of(point.rows, &Row::wrong);
            points[pass].push_back(point);
        }
    }
    for (const auto& [pass, of_pass] : points) print_summary(of_pass);
    std::printf("\n%.0f s\n", seconds_since_start());
    if (!options.json.empty()) write(options.json, result);
    return wrong ? 1 : 0;
}

}  // namespace flashtile::cli::bench_cuda
