// random_case.cpp: any combination of sizes, options and layouts; sizes are bounded so that the oracle stays quick.
#include <algorithm>
#include <vector>

#include "conformance/case_list.h"
#include "conformance/random_function.h"
#include "conformance/random_source.h"

namespace flashtile::conformance {
namespace {

std::int64_t length(RandomSource& random) {
    switch (random.integer(0, 3)) {
        case 0:
            return random.integer(1, 8);
        case 1:
            return random.pick<std::int64_t>({16, 32, 63, 64, 65, 127, 128, 129, 256});
        default:
            return random.integer(1, 280);
    }
}

std::int64_t head_dim(RandomSource& random) {
    switch (random.integer(0, 4)) {
        case 0:
            return random.integer(1, 512);
        case 1:
            return random.integer(1, 40);
        default:
            return random.pick<std::int64_t>({8, 16, 24, 32, 40, 64, 64, 80, 96, 128});
    }
}

BroadcastSpec broadcast(RandomSource& random) {
    BroadcastSpec spec{.present = true};
    for (bool& spans : spec.spans) spans = random.chance(0.65);
    while (spec.rank > 1 && !spec.spans[4 - static_cast<std::size_t>(spec.rank)] && random.chance(0.5)) --spec.rank;
    spec.expanded = spec.rank == 4 && random.chance(0.2);
    return spec;
}

Layout layout(RandomSource& random, bool may_broadcast) {
    Layout l;
    l.heads_before_rows = random.chance(0.4);
    if (random.chance(0.4)) l.row_gap = random.integer(1, 19);
    l.nonsense_strides = random.chance(0.3);
    if (may_broadcast) {
        l.broadcast_first = random.chance(0.08);
        l.broadcast_heads = random.chance(0.08);
    }
    return l;
}

void sizes(Case& c, RandomSource& random) {
    c.kv_heads = random.pick<std::int64_t>({1, 1, 2, 3});
    c.heads = c.kv_heads * random.pick<std::int64_t>({1, 1, 2, 4});
    c.head_dim = head_dim(random);
    c.head_dim_v = random.chance(0.6) ? c.head_dim : head_dim(random);
    if (random.chance(0.3)) {
        const std::int64_t sequences = random.integer(1, 5);
        for (std::int64_t n = 0; n < sequences; ++n) {
            c.lengths_q.push_back(random.chance(0.1) ? 0 : length(random));
            c.lengths_k.push_back(random.chance(0.1) ? 0 : random.chance(0.5) ? c.lengths_q.back() : length(random));
        }
        c.spare_rows = random.chance(0.3) ? random.integer(1, 10) : 0;
        c.wide_lengths = random.chance(0.5);
    } else {
        c.batch = random.pick<std::int64_t>({1, 1, 2, 3});
        c.seqlen_q = length(random);
        c.seqlen_k = random.chance(0.5) ? c.seqlen_q : length(random);
    }
    if (random.chance(0.15))
        for (std::int64_t n = 0; n < c.sequences(); ++n)
            c.used_k.push_back(random.integer(0, c.packed() ? c.lengths_k[static_cast<std::size_t>(n)] : c.seqlen_k));
}

void options(Case& c, RandomSource& random) {
    c.causal = random.pick<causal_mode>({false, false, bottom_right, top_left});
    if (random.chance(0.2)) c.window.left = random.integer(0, 100);
    if (random.chance(0.2)) c.window.right = random.integer(0, 100);
    c.align_top_left = random.chance(0.2);
    if (random.chance(0.2)) c.scale = static_cast<float>(random.uniform());
    if (random.chance(0.2)) c.softcap = static_cast<float>(0.5 + 10.0 * random.uniform());
    if (random.chance(0.25)) c.slopes = random.chance(0.5) ? Slopes::per_head : Slopes::per_batch_and_head;
    if (random.chance(0.3)) {
        c.bias = broadcast(random);
        c.bias_in_fp32 = random.chance(0.4);
        if (random.chance(0.3)) c.bias_values = random.pick({BiasValues::lowest_hides, BiasValues::infinity_hides});
    }
    if (random.chance(0.25)) {
        c.mask = broadcast(random);
        c.mask_density = random.pick({0.05, 0.5, 0.9});
    }
    if (random.chance(0.25)) {
        c.dropout = random.pick({0.1, 0.5, random.uniform()});
        c.seed = random.bits();
        c.offset = random.bits();
        c.seed_in_memory = random.chance(0.3);
    }
    c.with_dlse = random.chance(0.3);
    c.deterministic = random.chance(0.3);
    c.batch_invariant = random.chance(0.3);
    c.exact_max = random.chance(0.3);
    c.threads = static_cast<int>(random.integer(1, 3));
}

void groups(Case& c, RandomSource& random) {
    c.cache.groups = {0};
    while (c.cache.groups.back() < c.sequences() && random.chance(0.8)) {
        c.cache.groups.push_back(random.integer(c.cache.groups.back(), c.sequences()));
        c.cache.prefixes.push_back(random.integer(0, c.longest_k()));
    }
}

std::vector<std::int64_t> each_sequence(const Case& c, RandomSource& random, std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> values;
    for (std::int64_t b = 0; b < c.sequences(); ++b) values.push_back(random.integer(low, high));
    return values;
}

// Drawn last: problems without any of it are the same from version to version.
void serving(Case& c, RandomSource& random) {
    if (random.chance(0.15)) c.sinks = random.chance(0.5) ? Sinks::in_fp32 : Sinks::in_the_inputs_type;
    if (random.chance(0.1)) c.chunk = random.integer(1, 150);
    if (random.chance(0.15)) {
        c.cache = {.present = true, .page_size = random.pick<std::int64_t>({0, 1, 3, 16, 16, 64, 100})};
        c.cache.shared = random.chance(0.3);
        c.inputs.broadcast_first = c.inputs.broadcast_heads = false;
    }
    if (random.chance(0.1)) c.first_k = each_sequence(c, random, 0, c.longest_k() + 1);
    if (random.chance(0.1)) c.used_q = each_sequence(c, random, 0, c.longest_q());
    c.tree = c.longest_q() <= 64 && random.chance(0.2);
    if (!c.batch_invariant && random.chance(0.1)) c.num_splits = static_cast<int>(random.integer(1, 9));
    if (c.head_dim_v <= 128 && random.chance(0.03)) c.head_dim = random.integer(513, 576);
    c.positions = c.tree && random.chance(0.5);
    if (c.cache.page_size != 0 && !c.cache.shared && random.chance(0.5)) groups(c, random);
}

void shard(Case& c, RandomSource& random) {
    if (!c.positions && random.chance(0.15)) c.diagonal = random.integer(-300, 300);
    if (c.dropout != 0.0 && random.chance(0.3))
        c.origin = {random.integer(0, 1000), random.integer(0, 4000), random.integer(0, std::int64_t{1} << 31),
                    random.integer(0, 100)};
    if (c.chunk != 0) c.origin.j = random.integer(0, 3) * c.chunk;
}

// Drawn after all the rest.
void shard_of_each_sequence(Case& c, RandomSource& random) {
    if (!c.positions && random.chance(0.15)) {
        c.diagonal = 0;
        c.diagonals = each_sequence(c, random, -300, 300);
    }
    if (c.dropout == 0.0 || !random.chance(0.3)) return;
    if (random.chance(0.7)) {
        c.origin.i = 0;
        c.origins_i = each_sequence(c, random, 0, std::int64_t{1} << 31);
    }
    if (random.chance(0.7)) {
        c.origin.j = 0;
        c.origins_j = each_sequence(c, random, 0, 100);
        if (c.chunk != 0)
            for (std::int64_t& j : c.origins_j) j *= c.chunk;
    }
}

void functions(Case& c, RandomSource& random) {
    if (random.chance(0.1)) c.score_function = random_score_function(random);
    if (random.chance(0.1)) c.mask_function = random_mask_function(random);
    c.tensor_gradients = !c.score_function.empty();
    if (!random.chance(0.1)) return;
    c.blocks = {.block_q = random.pick<std::int64_t>({64, 128, 192}),
                .block_k = random.pick<std::int64_t>({64, 128, 192}),
                .per_sequence = random.chance(0.5),
                .per_head = random.chance(0.5),
                .full = random.chance(0.5)};
}

// Drawn after all the rest.
void e4m3(Case& c, RandomSource& random) {
    const auto scaling = [&] {
        return random.pick({Scaling::none, Scaling::whole, Scaling::heads, Scaling::blocks, Scaling::blocks});
    };
    if (random.chance(0.2)) {
        c.e4m3 = {.present = true, .keys_only = random.chance(0.5)};
        c.e4m3.q = scaling(), c.e4m3.k = scaling(), c.e4m3.v = scaling();
        c.e4m3.block = random.chance(0.5) ? 64 : 128;
        if (c.type == fp32) c.e4m3.keys_only = false;
        c.e4m3 = c.e4m3.settled();
    }
    c.out_in_fp32 = c.forward_only() && random.chance(0.2);
}

}  // namespace

Case random_case(std::uint64_t seed) {
    RandomSource random(seed);
    Case c;
    c.name = "random/" + std::to_string(seed);
    c.type = random.pick({fp32, fp16, bf16});
    sizes(c, random);
    options(c, random);
    c.inputs = layout(random, true);
    c.outputs = layout(random, false);
    c.guard = random.pick({Guard::nan_bands, Guard::nan_bands, Guard::page_after, Guard::page_before});
    c.magnitude_qk = random.pick({0.1, 1.0, 1.0, 3.0});
    c.magnitude_v = random.pick({0.01, 1.0, 1.0, 20.0});
    c.data_seed = seed;
    serving(c, random);
    shard(c, random);
    shard_of_each_sequence(c, random);
    functions(c, random);
    e4m3(c, random);
    return c;
}

}  // namespace flashtile::conformance
