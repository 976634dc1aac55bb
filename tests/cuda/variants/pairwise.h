// pairwise.h: a short list of rows, each a choice for every factor, in which every two choices of different factors
// stand together at least once: most faults of options need one or two of them to show.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace flashtile::variants {

using Row = std::vector<int>;  // the choice for each factor

struct Pair {
    std::size_t factor_a;
    int choice_a;
    std::size_t factor_b;
    int choice_b;

    bool in(const Row& row) const { return row[factor_a] == choice_a && row[factor_b] == choice_b; }
};

std::vector<Pair> all_pairs(const std::vector<int>& choices);

// `choices` says how many each factor has. Rows that are not allowed are not made; pairs that were found in no allowed
// row are left uncovered. The same list on every machine.
std::vector<Row> pairwise(const std::vector<int>& choices, const std::function<bool(const Row&)>& allowed);

}  // namespace flashtile::variants
