// contest.cpp: see contest.h.
#include "tune/contest.h"

#include <chrono>

#include "median.h"

namespace flashtile::cli::tune {
namespace {

constexpr std::size_t kFewest = 5, kMost = 201;  // samples

}  // namespace

void time_in_turns(std::vector<Contestant>& contestants, double seconds) {
    std::vector<Contestant*> running;
    for (Contestant& each : contestants)
        if (each.out_because.empty()) running.push_back(&each);
    std::vector<std::vector<double>> samples(running.size());
    const auto start = std::chrono::steady_clock::now();
    const auto more = [&](std::size_t round) {
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        return round < kFewest || (round < kMost && taken.count() < seconds);
    };
    for (std::size_t round = 0; more(round); ++round)
        for (std::size_t n = 0; n < running.size(); ++n) {
            const std::size_t who = (n + round) % running.size();
            samples[who].push_back(running[who]->sample());
        }
    for (std::size_t n = 0; n < running.size(); ++n) running[n]->milliseconds = median(samples[n]);
}

std::size_t best_of(const std::vector<Contestant>& contestants) {
    std::size_t best = 0;
    for (std::size_t n = 1; n < contestants.size(); ++n)
        if (contestants[n].out_because.empty() && contestants[n].milliseconds < contestants[best].milliseconds)
            best = n;
    return contestants[best].milliseconds * kClear < contestants[0].milliseconds ? best : 0;
}

}  // namespace flashtile::cli::tune
