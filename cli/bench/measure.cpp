// measure.cpp: see measure.h.
#include "bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <thread>

#include "median.h"

namespace flashtile::cli::bench {
namespace {

using namespace std::chrono_literals;

// A sample lasts at least this long, so that the clock and a wake-up do not matter.
constexpr double sample_seconds = 0.02;
// Threads of the method before may still spin, waiting for work; they sleep after this.
constexpr auto settle = 5ms;

struct Candidate {
    Method* method;
    int calls_per_sample;
    double error;
    std::vector<double> seconds = {};  // of one call
    std::vector<double> shares = {};   // of the ceiling, a sample each
};

double sample(const Candidate& candidate) {
    if (candidate.calls_per_sample > 1) candidate.method->run(1);  // wakes its threads, fills the caches
    return candidate.method->run(candidate.calls_per_sample) / candidate.calls_per_sample;
}

}  // namespace

Measurement measure(const Point& point, const std::vector<std::unique_ptr<Method>>& methods,
                    const std::function<double()>& look, int repeats, double seconds,
                    const std::function<Results(const Point&, const Inputs&)>& given_reference) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    Measurement result;
    const Inputs inputs = random_inputs(point);
    const Method* baseline = methods.front().get();
    std::optional<Results> reference;
    if (given_reference) reference = given_reference(point, inputs);

    std::vector<Candidate> candidates;
    for (const auto& method : methods) {
        if (const std::string why = method->why_not(point); !why.empty()) {
            result.left_out.push_back(fmt::format("{}: {}", method->name(), why));
            continue;
        }
        try {
            method->prepare(point, inputs);
            const double first = method->run(1);
            double off = 0.0;
            if (method.get() == baseline && !reference) {
                reference = method->results();
            } else {
                if (!reference) reference = standard_results(point, inputs);
                off = difference(method->results(), *reference);
                if (!(off <= tolerance(point.dtype))) {
                    result.wrong.push_back(fmt::format(
                        "{}: differs from {} attention by {:.2g} of the largest value, allowed is {:.2g}",
                        method->name(), given_reference ? "exact" : "standard", off, tolerance(point.dtype)));
                    continue;
                }
            }
            // The first call of all may have paid for memory and threads, so where calls are short another one counts.
            const double once = first > 10 * sample_seconds ? first : method->run(1);
            candidates.push_back(
                {method.get(), std::clamp(static_cast<int>(std::ceil(sample_seconds / once)), 1, 100000), off});
        } catch (const std::exception& failure) {
            result.left_out.push_back(fmt::format("{}: {}", method->name(), failure.what()));
        }
    }

    std::vector<double> looks;
    const auto look_again = [&] {
        std::this_thread::sleep_for(settle);
        return looks.emplace_back(look());
    };
    double before = look_again();
    for (int round = 0; round < repeats; ++round) {
        for (std::size_t n = 0; n < candidates.size(); ++n) {
            Candidate& candidate = candidates[(n + static_cast<std::size_t>(round)) % candidates.size()];
            const double time = candidate.seconds.emplace_back(sample(candidate));
            const double after = look_again();
            candidate.shares.push_back(work(point) / time * 1e-9 / (0.5 * (before + after)));
            before = after;
        }
        if (seconds > 0.0 && elapsed() > seconds) break;
    }
    for (const auto& method : methods) method->release();
    result.ceiling = median(looks);

    for (const Candidate& candidate : candidates) {
        const double time = median(candidate.seconds);
        const double rate = work(point) / time * 1e-9;
        result.rows.push_back({candidate.method->name(), candidate.method->isa(point), point, time * 1e3, rate,
                               candidate.error, median(candidate.shares)});
    }
    return result;
}

}  // namespace flashtile::cli::bench
