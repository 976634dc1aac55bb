// backward_sm90.cpp: when Hopper's backward kernels run, and with which tile.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/plan/backward_launches.h"
#include "cuda/plan/block_map.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/conditions_sm90.h"
#include "cuda/plan/limits.h"
#include "cuda/plan/tile_fit.h"
#include "cuda/tiles/sm90.h"
#include "functions/functions.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr int kConsumerWarps = 8, kConsumerKeys = 64;
constexpr std::int64_t kAnyLength[] = {1};
constexpr int kWidestWithOptions = 128;                      // columns of heads
constexpr int kWidestApart = 192, kWidestValuesApart = 128;  // of which each consumer holds dK and dV of 64 keys
constexpr int kPairedColumns = 256, kPairedKeys = 64;        // of both heads, and of each thread block of a pair
constexpr std::int64_t kManyKeys = 1 << 20;  // of which each multiprocessor of any GPU has several blocks
constexpr std::int64_t kFewPairsMany[] = {1, kPairedKeys + 1, kManyKeys};

int widest(const KernelConfig& c) {
    return std::max(c.head_dim, c.head_dim_v);
}

bool works_on_scores(const KernelConfig& c) {
    return c.softcap || c.alibi || c.dropout || c.mask || c.has_functions() || c.scale_first;
}

constexpr Condition kConditions[] = {
    kAtMost256,
    {"attention_chunk", [](const Question& q) { return !q.config.chunk; }},
    {"softcap, ALiBi, a bias, a mask, functions, dropout or a scale that is not positive, with a head dimension over "
     "128",
     [](const Question& q) { return !works_on_scores(q.config) || widest(q.config) <= kWidestWithOptions; }},
    {"softcap with ALiBi, a bias or a mask, which take more registers",
     [](const Question& q) { return !q.config.softcap || !(q.config.alibi || q.config.has_bias_or_mask()); }},
    {"a mask with ALiBi or a bias, which take more registers",
     [](const Question& q) { return !q.config.mask || !(q.config.alibi || q.config.bias != BiasElement::none); }},
    {"softcap with head dimensions to 64, which takes more registers",
     [](const Question& q) { return !q.config.softcap || widest(q.config) > kChunk; }},
    {"score_function or mask_function with softcap, ALiBi, a bias or a mask, which take more registers",
     [](const Question& q) {
         const KernelConfig& c = q.config;
         return !c.has_functions() || !(c.softcap || c.alibi || c.has_bias_or_mask());
     }},
    {"score_function whose derivative is not 1 with head dimensions to 64, which takes more registers",
     [](const Question& q) {
         return !q.config.score_function || widest(q.config) > kChunk ||
                functions::functions_of(q.problem.functions).derivative_is_one();
     }},
    kDropsInSquares,
    kOneDiagonal,
    {"head_dim_v wider than head_dim",
     [](const Question& q) {
         const int d = chunk_columns(q.config.head_dim), dv = chunk_columns(q.config.head_dim_v);
         return dv <= d || dv > 128;
     }},
};

// Each consumer has keys of its own. Wider heads leave no registers for P in fp32.
bool works_apart(const KernelConfig& c) {
    if (widest(c) <= kWidestWithOptions) return true;
    return chunk_columns(c.head_dim) <= kWidestApart && c.head_dim_v <= kWidestValuesApart && !c.exact_max;
}

// Both thread blocks of a pair have something to do, as far as the host knows.
bool works_in_pairs(const Question& q, const KernelConfig& c) {
    return chunk_columns(c.head_dim) == kPairedColumns && chunk_columns(c.head_dim_v) == kPairedColumns &&
           q.problem.seqlen_k > kPairedKeys;
}

// Of all sequences and key heads. Sequences of a packed batch each start at a block of their own.
std::int64_t key_blocks(const Problem& p, const KernelConfig& c) {
    const int rows = paired_blocks(c) * c.Bc;
    return p.kv_heads * (c.packed_keys() ? p.total_k / rows + p.batch : p.batch * blocks_of(p.seqlen_k, rows));
}

// How long a pass takes, at the least, in units of a block of keys with all heads of its group. Under a band the blocks
// have all kinds of lengths, and the longest go first.
double rounds(const Question& q, const KernelConfig& c, int parts) {
    const double all = static_cast<double>(key_blocks(q.problem, c)), at_a_time = q.device.multiprocessors;
    if ((c.band && !c.window) || c.mask_function) return std::max(1.0 / parts, all / 2 / at_a_time);
    return std::ceil(all * parts / at_a_time) / parts;
}

// Two thread blocks share the heads of a group where that keeps more multiprocessors at work; what they exchange at the
// end takes about as long as a step. Under a causal mask they always do: thread blocks with long and short ranges of
// queries drift apart head by head, and with half of the heads Q, dO and dQ of fewer heads are in use at a time (64
// heads on 8, H200: 446 to 542 TFLOP/s at 4k, 543 to 574 at 16k).
bool shares_heads(const Question& q, const KernelConfig& c) {
    return c.kernel == Kernel::backward_sm90 && q.problem.group() % 2 == 0 && c.head_dim == c.head_dim_v &&
           ((c.band && !c.window) || rounds(q, c, 1) > 1.1 * rounds(q, c, 2));
}

std::optional<Launch> main_launch(const Question& q) {
    KernelConfig c = q.config;
    c.deterministic = q.problem.deterministic;
    c.exact_max = q.problem.exact_max;
    const bool apart = works_apart(c);
    c.kernel = apart                  ? Kernel::backward_sm90
               : works_in_pairs(q, c) ? Kernel::backward_pair_sm90
                                      : Kernel::backward_wide_sm90;
    c.bias_mapped = c.bias == BiasElement::same && q.access.bias_map;
    c.map_of_keys = c.mask_function;
    c.narrow_lists = c.block_lists && !c.score_function && q.problem.block_k % (2 * kConsumerKeys) != 0;
    c.lazy_rescale = c.softcap;  // a warp may choose how it computes tanh
    std::optional<Launch> launch =
        first_fit(c, apart ? std::span<const Tile>(sm90::kBackward) : sm90::kBackwardWide, q.device);
    if (launch && shares_heads(q, launch->config)) launch->config.head_parts = 2;
    return launch;
}

// Under a band, or a mask function, key blocks of a head differ in their work, and those with most go first: the first
// ones of several heads, as many as have Q, dO and dQ in the L2 cache together, and at least so many that every
// multiprocessor begins with one of them. Blocks that add in turns begin with those that have least, and then all of
// these heads' Q, dO and dQ are in use at once, not a part that moves along: they take fewer heads (d 192/128, causal,
// 4k, H100: by 46% slower with 8 heads, by 7% with 2, without the turns).
int section_heads(const Question& q, const KernelConfig& c) {
    if (!c.band && !c.mask_function) return 1;
    const std::int64_t cache = c.deterministic ? 10'000'000 : 40'000'000;  // bytes
    const Problem& p = q.problem;
    const std::int64_t of_query = 4 * padded(c, c.head_dim) + size_of(c.element) * (p.head_dim + p.head_dim_v);
    const std::int64_t of_head = std::max<std::int64_t>(1, p.group() * p.seqlen_q * of_query);
    const auto in_cache = std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, cache / of_head)));
    if (c.deterministic) return static_cast<int>(in_cache);
    const std::int64_t blocks = std::max<std::int64_t>(1, blocks_of(p.seqlen_k, paired_blocks(c) * c.Bc));
    const std::int64_t at_a_time = q.device.multiprocessors / cluster_blocks(c);
    const auto at_work = std::bit_ceil(static_cast<std::uint64_t>(blocks_of(at_a_time, static_cast<int>(blocks))));
    return static_cast<int>(std::max(in_cache, at_work));
}

void complete(const Question& q, const Launch& main, Plan& plan) {
    Launch launch = main;
    launch.blocks = checked_blocks(key_blocks(q.problem, main.config) * cluster_blocks(main.config));
    launch.maps.push_back({MappedOperand::q, main.config.Br, true});
    launch.maps.push_back({MappedOperand::k, main.config.Bc, true});
    launch.maps.push_back({MappedOperand::v, main.config.Bc, true});
    launch.maps.push_back({MappedOperand::dout, main.config.Br, true});
    if (main.config.bias_mapped) launch.maps.push_back({MappedOperand::bias, main.config.Br});
    plan.row_flip = row_flip(main.config);
    plan.section_heads = section_heads(q, main.config);
    add_block_map(q, main.config, plan);
    add_backward_launches(q, launch, kConsumerWarps, plan);
}

}  // namespace

constinit const Candidate backward_sm90 = {
    "backward_sm90", {kConditionsSm90, kConditions}, main_launch, complete, kAnyLength, kFewPairsMany};

}  // namespace flashtile::gpu
