// work_partition.h: what FlashAttention-2 changed of FlashAttention, a switch each (FlashAttention-2 paper, sections
// 3.1 to 3.3), and how the baseline lies in shared memory. All switches off is FlashAttention, all on FlashAttention-2.
// Included by the host compiler and by NVRTC.
#pragma once

#include "shared/kernel_layout.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

struct WorkPartition {
    // Section 3.1. Forward: O is divided by l once, at the end, instead of at every step. Backward: P is made of LSE
    // instead of m and l.
    bool deferred = false;
    // Section 3.2: a thread block owns a block of queries and walks the keys (forward), or a block of keys and walks
    // the queries (backward). Else it owns a whole head, with keys in the outer loop and queries in the inner one, and
    // what is not finished goes to memory between two steps.
    bool over_sequence = false;
    // Section 3.3: the warps of a thread block split Q and share K and V. Else they split K and V and share Q
    // ("split-K"), and add up what each has.
    bool split_queries = false;

    bool operator==(const WorkPartition&) const = default;
};
inline constexpr WorkPartition kAllWays{.deferred = true, .over_sequence = true, .split_queries = true};

// Where warps split keys, they add up their shares of a result of Br rows in parts of so many columns: as many as leave
// a warp's share of a part 64 registers a lane, and a divisor of all columns.
constexpr int exchanged_columns(const KernelConfig& c) {
    int columns = 2 * 1024 / c.Br;
    while (padded(c, c.head_dim) % columns != 0) columns -= 16;
    return columns;
}

// Each warp's share of such a part in fp32, then each warp's maximum and sum of every row.
constexpr int exchange_bytes(const KernelConfig& c, const WorkPartition& ways) {
    return ways.split_queries ? 0 : c.warps * c.Br * (exchanged_columns(c) + 2) * 4;
}

// Forward: the stages of Q, of K and of V, of which what the inner loop walks has config.stages.
constexpr int query_stages(const KernelConfig& c, const WorkPartition& ways) {
    return ways.over_sequence ? 1 : c.stages;
}
constexpr int key_stages(const KernelConfig& c, const WorkPartition& ways) {
    return ways.over_sequence ? c.stages : 1;
}
constexpr int forward_shared_bytes(const KernelConfig& c, const WorkPartition& ways) {
    return query_stages(c, ways) * tile_bytes(c, c.Br, c.head_dim) +
           2 * key_stages(c, ways) * tile_bytes(c, c.Bc, c.head_dim) + exchange_bytes(c, ways);
}
// Backward: as our own kernel has it, and what warps exchange.
constexpr int backward_shared_bytes(const KernelConfig& c, const WorkPartition& ways) {
    return round_up(backward_shared_bytes(c), 16) + exchange_bytes(c, ways);
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
