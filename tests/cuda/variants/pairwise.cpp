// pairwise.cpp: see pairwise.h.
#include "cuda/variants/pairwise.h"

#include <algorithm>

#include "conformance/random_source.h"

namespace flashtile::variants {
namespace {

constexpr int kTries = 60;  // rows tried for a pair; the one that covers most is taken

}  // namespace

std::vector<Pair> all_pairs(const std::vector<int>& choices) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < choices.size(); ++a)
        for (std::size_t b = a + 1; b < choices.size(); ++b)
            for (int i = 0; i < choices[a]; ++i)
                for (int j = 0; j < choices[b]; ++j) pairs.push_back({a, i, b, j});
    return pairs;
}

std::vector<Row> pairwise(const std::vector<int>& choices, const std::function<bool(const Row&)>& allowed) {
    std::vector<Row> rows;
    std::vector<Pair> open = all_pairs(choices);
    conformance::RandomSource random(1);
    while (!open.empty()) {
        const Pair wanted = open.front();
        Row best;
        std::ptrdiff_t most = 0;
        for (int n = 0; n < kTries; ++n) {
            Row row;
            for (const int count : choices) row.push_back(static_cast<int>(random.integer(0, count - 1)));
            row[wanted.factor_a] = wanted.choice_a;
            row[wanted.factor_b] = wanted.choice_b;
            const auto covers = std::ranges::count_if(open, [&](const Pair& pair) { return pair.in(row); });
            if (covers > most && allowed(row)) {
                most = covers;
                best = row;
            }
        }
        if (best.empty())
            open.erase(open.begin());
        else
            std::erase_if(open, [&](const Pair& pair) { return pair.in(best); });
        if (!best.empty()) rows.push_back(best);
    }
    return rows;
}

}  // namespace flashtile::variants
