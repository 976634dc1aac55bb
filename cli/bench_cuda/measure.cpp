// measure.cpp: see measure.h.
#include "bench_cuda/measure.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <thread>

#include "numbers.h"
#include "tune/contest.h"

namespace flashtile::cli::bench_cuda {
namespace {

using gpu_resources::Buffer;

constexpr std::byte kPoison{0xFF};  // a NaN in every floating-point type

class Problem {
public:
    Problem(const Shape& shape, Element element)
        : shape_(shape),
          type_(element == Element::fp16 ? fp16 : bf16),
          q_(random(shape.seqlen_q, 1)),
          k_(random(shape.seqlen_k, 2)),
          v_(random(shape.seqlen_k, 3)),
          out_(bytes(shape.seqlen_q)),
          lse_(static_cast<std::size_t>(shape.batch * shape.heads * shape.seqlen_q * 4)),
          operands_{.q = q_.data(), .k = k_.data(), .v = v_.data(), .out = out_.data(), .lse = lse_.data()} {}

    // Of a run on poisoned memory: pieces of the result, spread over all of it.
    Results results(Attention& attention) {
        out_.fill(kPoison);
        attention.forward(operands_, stream_);
        stream_.synchronize();
        Results results;
        results.out = pieces(out_);
        return results;
    }

    // Milliseconds of a run, of as many as take a few ms.
    double sample(Attention& attention, int runs) {
        before_.record(stream_);
        for (int n = 0; n < runs; ++n) attention.forward(operands_, stream_);
        after_.record(stream_);
        after_.synchronize();
        return static_cast<double>(after_.milliseconds_since(before_)) / runs;
    }

private:
    std::int64_t count(std::int64_t seqlen) const { return shape_.batch * seqlen * shape_.heads * shape_.head_dim; }
    std::size_t bytes(std::int64_t seqlen) const { return static_cast<std::size_t>(count(seqlen) * 2); }
    Buffer random(std::int64_t seqlen, std::uint64_t seed) const {
        const Numbers numbers = random_numbers(type_, count(seqlen), seed);
        Buffer buffer(numbers.bytes());
        buffer.upload({static_cast<const std::byte*>(numbers.data()), numbers.bytes()});
        return buffer;
    }

    std::vector<float> pieces(const Buffer& from) const {
        constexpr std::size_t kPieces = 16, kPiece = 64 * 1024;
        const std::size_t piece = std::min(kPiece, from.size() / kPieces / 2 * 2);
        std::vector<float> all;
        for (std::size_t n = 0; n < kPieces; ++n) {
            const std::size_t first = (from.size() - piece) / 2 * n / (kPieces - 1) * 2;
            const Numbers numbers(type_, static_cast<std::int64_t>(piece / 2));
            from.download({static_cast<std::byte*>(numbers.data()), piece}, first);
            const std::vector<float> values = numbers.as_floats();
            all.insert(all.end(), values.begin(), values.end());
        }
        return all;
    }

    Shape shape_;
    dtype type_;
    gpu_resources::Stream stream_;
    gpu_resources::Event before_, after_;
    Buffer q_, k_, v_, out_, lse_;
    gpu_baselines::Operands operands_;
};

}  // namespace

double flops(const Shape& s) {
    const double all =
        4.0 * static_cast<double>(s.seqlen_q * s.seqlen_k) * static_cast<double>(s.head_dim * s.heads * s.batch);
    return s.causal ? all / 2.0 : all;
}

void compile_all(const std::vector<Shape>& shapes, Element element) {
    std::map<std::string, KernelText> different;
    for (const Shape& shape : shapes)
        for (const Method& method : methods_for(shape, element))
            for (const KernelText& text : method.texts) different.emplace(text.whole(), text);
    std::vector<KernelText> texts;
    for (const auto& [whole, text] : different) texts.push_back(text);
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < std::max(1U, std::thread::hardware_concurrency()); ++n)
        threads.emplace_back([&] {
            for (std::size_t at = next++; at < texts.size(); at = next++) try {
                    gpu_baselines::prepare(texts[at], 0);
                } catch (const std::exception&) {  // who wants the kernel is told
                }
        });
    for (std::thread& thread : threads) thread.join();
}

std::vector<Row> measure(const Shape& shape, Element element, double seconds) {
    Problem problem(shape, element);
    std::vector<std::unique_ptr<Attention>> running;
    std::vector<Row> rows;
    std::vector<tune::Contestant> contestants;
    std::optional<Results> reference;
    for (const Method& method : methods_for(shape, element)) {
        Row row{.method = method.name};
        tune::Contestant contestant{.tile = method.name, .choice = "", .sample = {}};
        try {
            running.push_back(method.make());
            Attention* const attention = running.back().get();
            row.extra_bytes = attention->extra_bytes();
            const Results results = problem.results(*attention);
            if (!reference) reference = results;
            row.error = difference(results, *reference);
            row.wrong = !(row.error <= tolerance(element == Element::fp16 ? fp16 : bf16));
            if (row.wrong) row.out_because = "its result differs by " + std::to_string(row.error);
            constexpr double kLeast = 2.0, kMost = 50.0;
            const int runs = static_cast<int>(
                std::clamp(std::ceil(kLeast / std::max(problem.sample(*attention, 1), 1e-3)), 1.0, kMost));
            contestant.sample = [&problem, attention, runs] { return problem.sample(*attention, runs); };
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
        rows[n].teraflops = flops(shape) / (rows[n].milliseconds * 1e9);
    }
    return rows;
}

}  // namespace flashtile::cli::bench_cuda
