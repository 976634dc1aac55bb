// variants.h: the stated list of kernel variants that must compile on every architecture: the factors, a problem for a
// row of choices, and the configs that the planner gives it.
#pragma once

#include <string>
#include <vector>

#include "cuda/plan/plan.h"
#include "cuda/variants/pairwise.h"

namespace flashtile::variants {

struct Factor {
    const char* name;
    std::vector<std::string> choices;
};

const std::vector<Factor>& factors();

// How many choices each factor has.
std::vector<int> counts();

struct Variant {
    int architecture;
    KernelConfig config;

    bool operator==(const Variant&) const = default;
};

// What the planner makes of a row; throws where it refuses the problem.
std::vector<Variant> variants_of(const Row& row);

// The rows that the planner takes, of all GPUs. Every two choices stand together in one, the GPU being a factor as
// well: each choice is compiled for each architecture, and each pair of other choices for some architecture, not for
// each, since one source serves all. Further rows, on Hopper alone, lack the options that Hopper's kernels do not
// serve, because those kernels would hardly appear otherwise.
std::vector<Row> rows();

// Those with the tiles that `flashtile tune` may choose.
std::vector<Variant> alternatives();

// Those of merge and append_kv.
std::vector<Variant> beside_attention();

// Those for a cache and for split keys.
std::vector<Variant> serving();

// Those of Hopper's forward for latent heads.
std::vector<Variant> latent();

// Those of Hopper's forward as it serves.
std::vector<Variant> shares();

// Those that take e4m3, and those that make it.
std::vector<Variant> e4m3();

// Those with a user's functions.
std::vector<Variant> with_functions();

// The variants of all rows, and those above, each once.
std::vector<Variant> all_variants();

}  // namespace flashtile::variants
