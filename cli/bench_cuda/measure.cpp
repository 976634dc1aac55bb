// measure.cpp: see measure.h.
#include "bench_cuda/measure.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "tune/contest.h"

namespace flashtile::cli::bench_cuda {
namespace {

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < std::max(1U, std::thread::hardware_concurrency()); ++n)
        threads.emplace_back([&] {
            for (std::size_t at = next++; at < count; at = next++) try {
                    work(at);
                } catch (const std::exception&) {  // who wants the kernel is told
                }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

void compile_all(const std::vector<Method>& methods) {
    std::map<std::string, KernelText> different;
    for (const Method& method : methods)
        for (const KernelText& text : method.texts) different.emplace(text.whole(), text);
    std::vector<KernelText> texts;
    texts.reserve(different.size());
    for (const auto& [whole, text] : different) texts.push_back(text);
    in_parallel(texts.size(), [&](std::size_t n) { gpu_baselines::prepare(texts[n], 0); });
}

void call_library(const std::vector<Shape>& shapes, Element element) {
    in_parallel(shapes.size(), [&](std::size_t n) {
        Problem problem(shapes[n], element == Element::fp16 ? fp16 : bf16);
        const std::vector<Method> methods = methods_for(shapes[n], element);
        const auto library = std::ranges::find(methods, kLibrary, &Method::name);
        problem.results(*library->make(Pass::backward, 0), Pass::backward);
    });
}

namespace {

// A method at its fastest tile, with which it is timed.
struct Runner {
    std::unique_ptr<Attention> attention;
    double once = 0.0;  // milliseconds
};

// The method's, with the results that it made. Throws what the last tile threw where none runs.
Runner fastest(const Method& method, Problem& problem, Pass pass, Row& row, Results& results) {
    const std::vector<std::string>& tiles = pass == Pass::forward ? method.forward_tiles : method.backward_tiles;
    Runner best;
    std::exception_ptr failure;
    for (std::size_t n = 0; n < tiles.size(); ++n) try {
            Runner runner{method.make(pass, n)};
            const Results made = problem.results(*runner.attention, pass);
            runner.once = problem.sample(*runner.attention, pass, 1);
            if (best.attention != nullptr && best.once <= runner.once) continue;
            best = std::move(runner);
            results = made;
            row.tile = tiles[n];
        } catch (const std::exception&) {
            failure = std::current_exception();
        }
    if (best.attention == nullptr) std::rethrow_exception(failure);
    return best;
}

constexpr double kLeast = 2.0, kMost = 50.0;  // milliseconds of a sample, runs

}  // namespace

std::vector<Row> measure(Problem& problem, const Shape& shape, const std::vector<Method>& methods, Element element,
                         Pass pass, double seconds) {
    std::vector<Runner> running;
    std::vector<Row> rows;
    std::vector<tune::Contestant> contestants;
    std::optional<Results> reference;
    for (const Method& method : methods) {
        Row row{.method = method.name, .tile = ""};
        tune::Contestant contestant{.tile = method.name, .choice = "", .sample = {}};
        try {
            Results results;
            running.push_back(fastest(method, problem, pass, row, results));
            Attention* const attention = running.back().attention.get();
            row.extra_bytes = attention->extra_bytes();
            if (!reference) reference = results;
            row.error = difference(results, *reference);
            row.wrong = !(row.error <= tolerance(element == Element::fp16 ? fp16 : bf16));
            if (row.wrong) row.out_because = "its result differs by " + std::to_string(row.error);
            const int runs =
                static_cast<int>(std::clamp(std::ceil(kLeast / std::max(running.back().once, 1e-3)), 1.0, kMost));
            contestant.sample = [&problem, attention, pass, runs] { return problem.sample(*attention, pass, runs); };
        } catch (const std::exception& e) {  // no memory for S, or a tile that is too large for this GPU
            row.out_because = e.what();
        }
        contestant.out_because = row.out_because;
        rows.push_back(row);
        contestants.push_back(contestant);
    }
    tune::time_in_turns(contestants, seconds);
    for (std::size_t n = 0; n < rows.size(); ++n) {
        if (!rows[n].out_because.empty()) continue;
        rows[n].milliseconds = contestants[n].milliseconds;
        rows[n].teraflops = flops(shape, pass) / (rows[n].milliseconds * 1e9);
    }
    return rows;
}

}  // namespace flashtile::cli::bench_cuda
