// choice.cpp: what a choice holds for, and which tiles may be one.
#include "cuda/choice.h"

#include <algorithm>
#include <bit>

#include "cuda/tiles/alternatives.h"
#include "flashtile/version.h"
#include "shared/kernel_layout.h"

namespace flashtile::gpu {
namespace {

constexpr int kQueriesOfABlock = 128;
constexpr int kBlocksWhenFull = 2;  // of a multiprocessor

Tile tile_of(const KernelConfig& c) {
    return {0, c.Br, c.Bc, c.warps, c.stages, c.blocks_per_sm, ""};
}

bool same_sizes(const Tile& a, const Tile& b) {
    return a.Br == b.Br && a.Bc == b.Bc && a.warps == b.warps && a.stages == b.stages &&
           a.blocks_per_sm == b.blocks_per_sm;
}

std::int64_t nearest_power(std::int64_t length) {
    const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(length, 1));
    const std::uint64_t below = std::bit_floor(n);
    return static_cast<std::int64_t>(n >= below + below / 2 && below > 1 ? 2 * below : below);
}

Subject subject_of(const KernelConfig& planned, const Problem& p, const DeviceFacts& device) {
    KernelConfig c = planned;
    c.head_dim = padded(planned, planned.head_dim);
    c.head_dim_v = padded(planned, planned.head_dim_v);
    c.Br = c.Bc = c.warps = c.stages = c.warps_s = c.warps_dkv = c.warps_dq = 0;
    c.blocks_per_sm = 1;
    c.lse = false;
    const double queries = static_cast<double>(p.rows_q() * p.runs());
    const double blocks = queries * static_cast<double>(p.heads) / kQueriesOfABlock;
    return {c, nearest_power(p.seqlen_q), nearest_power(p.seqlen_k),
            blocks >= kBlocksWhenFull * device.multiprocessors};
}

// The rows of the width's own that serve a kernel.
template <class Visit>
void visit_alternatives(const KernelConfig& c, Visit visit) {
    const int widest = std::max(c.head_dim, c.head_dim_v);
    const auto width = std::ranges::lower_bound(alternatives::kWidths, widest);
    if (width == std::end(alternatives::kWidths)) return;
    for (const Tile& tile : alternatives::of(c.kernel, c.element))
        if (tile.widest == *width) visit(tile);
}

bool is_alternative(const Tile& tile, const KernelConfig& planned) {
    bool found = same_sizes(tile, tile_of(planned));
    visit_alternatives(planned, [&](const Tile& other) { found = found || same_sizes(tile, other); });
    return found;
}

}  // namespace

std::string choice_device(const DeviceFacts& device) {
    std::string text = device.name + "/" + std::to_string(device.architecture);
    std::ranges::replace_if(
        text, [](unsigned char c) { return c <= ' ' || c > '~'; }, '_');
    return text;
}

PlannedKernel measured_or(PlannedKernel table, const Problem& p, const DeviceFacts& device, Choices choices) {
    if (choices.empty() || p.batch_invariant) return table;
    const Subject subject = subject_of(table.config, p, device);
    for (const Choice& choice : choices) {
        if (choice.subject != subject || !is_alternative(choice.tile, table.config)) continue;
        if (auto kernel = with_tile(table.config, choice.tile, device)) {
            kernel->why = choice.why.c_str();
            kernel->measured = true;
            return *kernel;
        }
    }
    return table;
}

std::vector<Choice> alternatives_of(const PlannedKernel& planned, const Problem& p, const DeviceFacts& device) {
    std::vector<Choice> list;
    if (p.batch_invariant) return list;
    const auto add = [&](const Tile& tile) {
        const bool known = std::ranges::any_of(list, [&](const Choice& c) { return same_sizes(c.tile, tile); });
        if (known || !with_tile(planned.config, tile, device)) return;
        Choice choice;
        choice.version = FLASHTILE_VERSION_STRING;
        choice.device = choice_device(device);
        choice.subject = subject_of(planned.config, p, device);
        choice.tile = tile;
        choice.batch = p.batch;
        choice.heads = p.heads;
        choice.kv_heads = p.kv_heads;
        list.push_back(std::move(choice));
    };
    add(tile_of(planned.config));
    visit_alternatives(planned.config, add);
    if (list.size() == 1) list.clear();
    return list;
}

}  // namespace flashtile::gpu
