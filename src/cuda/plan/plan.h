// plan.h: what a problem runs on a GPU, as data: launches in their order, the workspace that they share, and the
// tensor maps that each of them needs. A plan is a pure function of the problem, of what its memory allows, of facts
// about the GPU and of what was measured there, so that it can be made for GPUs that are not there. The backend runs
// whatever a plan holds and knows no kernel by name; how a plan comes to be is in candidate.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/fixed_list.h"
#include "core/problem.h"
#include "cuda/device_facts.h"
#include "cuda/plan/access.h"
#include "shared/kernel_config.h"
#include "shared/key_splits.h"
#include "shared/tile_rounds.h"

namespace flashtile::gpu {

// The operands that TMA may read or write. KernelParams has a map of each.
enum class MappedOperand { q, k, v, out, dout, bias };

struct PlannedMap {
    MappedOperand operand = MappedOperand::q;
    int box_rows = 0;
    // Rows that the band hides from everyone lie outside the map and arrive as zero. Where lengths lie in device
    // memory, which no plan reads, the kernel sees to it instead.
    bool seen_rows_only = false;
    bool streamed = false;  // what is loaded is bound by memory alone
};

struct Launch {
    KernelConfig config;
    int shared_memory = 0;    // dynamic, bytes
    std::int64_t blocks = 0;  // thread blocks; 0: nothing to do
    const char* why = "";     // the tile table's reason, or the tuned tile's
    bool measured = false;    // the tile is a tuned one
    bool early = false;       // may begin while the launch before it still runs, and waits by itself for its end
    FixedList<PlannedMap, 6> maps{};
};

// Parts of the workspace, by the name that KernelParams has for them; rotated_q takes the place of q.
enum class Region {
    ticket,
    lse,
    lse_natural,
    D,
    dq,
    turn,
    part_o,
    part_ml,
    first_unit,
    rotated_q,
    block_map,
    block_kinds
};

struct PlannedRegion {
    Region name = Region::ticket;
    std::size_t offset = 0, bytes = 0;
    bool cleared = false;  // to zero, before the first launch
};

class PlannedWorkspace {
public:
    static constexpr std::size_t kAlignment = 256;

    // Behind the last one, at a multiple of kAlignment.
    void add(Region name, std::size_t bytes, bool cleared = false);

    const PlannedRegion* find(Region name) const;  // null where there is none

    FixedList<PlannedRegion, 10> regions{};
    std::size_t bytes = 0;  // of all
};

// A candidate that does not run the problem. Those behind the one that does are not asked.
struct PassedOver {
    const char* name = "";
    std::string_view reason = {};
    bool asked = false;
};

using PassedOverList = FixedList<PassedOver, 4>;  // in the order of candidates

struct Plan {
    const char* name = "";             // of the candidate
    FixedList<Launch, 10> launches{};  // in their order
    std::size_t main_launch = 0;       // the one whose tile may be a tuned one
    PlannedWorkspace workspace{};
    PassedOverList passed_over{};

    // What launches are told beside what the problem says: KernelParams explains them.
    TileRounds rounds{};
    int unit_rows = 0;
    int row_flip = 0;
    std::int64_t units = 0;
    SplitRule split_rule{};
    std::int64_t most_splits = 1;
    int part_queries = 0;
    int part_rows = 0;
    unsigned share_blocks = 0;
    bool rounded_shares = false;
    int fold_groups = 1;
    int page_box = 0;
    int section_heads = 1;
    int block_map_batch = 1, block_map_heads = 1;

    const Launch& main() const { return launches[main_launch]; }
    // The launch of this kernel; null where there is none.
    const Launch* find(Kernel kernel) const;
};

struct TunedTile;
using TunedTiles = std::span<const TunedTile>;  // what `flashtile tune` measured on this GPU: tuned_tile.h

// No candidate serves: UNSUPPORTED, with what speaks against each.
class NoCandidate : public Error {
public:
    NoCandidate(const std::string& message, const PassedOverList& passed_over)
        : Error(FLASHTILE_UNSUPPORTED, message), passed_over_(passed_over) {}
    const PassedOverList& passed_over() const { return passed_over_; }

private:
    PassedOverList passed_over_;
};

// Throws UNSUPPORTED where no candidate serves the problem on this GPU, naming what would.
Plan plan_forward(const Problem& problem, const Access& access, const DeviceFacts& device, TunedTiles tuned = {});
Plan plan_backward(const Problem& problem, const Access& access, const DeviceFacts& device, TunedTiles tuned = {});
Plan plan_dropout_mask(const Problem& problem, const DeviceFacts& device);

enum class Passes { forward, forward_and_backward };

// How many queries a sequence has: up to 64, whose keys may be split over thread blocks, or more.
enum class Queries { any, few, many };

// All the configs that a problem needs at whatever batch and lengths (with so many queries, which forward alone minds),
// as `flashtile compile` makes them; of the forward pass alone where no backward kernel takes the head dimensions.
std::vector<KernelConfig> configs_for(Problem problem, const Access& access, const DeviceFacts& device,
                                      Passes passes = Passes::forward_and_backward, Queries queries = Queries::any);

}  // namespace flashtile::gpu
