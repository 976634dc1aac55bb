// tuned_tile.cpp: what a tuned tile holds for, and which tiles may be one.
#include "cuda/tuned_tile.h"

#include <algorithm>
#include <bit>

#include "cuda/jit/config_fields.h"
#include "cuda/plan/tile_fit.h"
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
    reset(c, FieldGroup::tile);
    c.lse = false;
    c.functions = 0;  // other functions have this number in another process
    const double queries = static_cast<double>(p.rows_q() * p.runs());
    const double blocks = queries * static_cast<double>(p.heads) / kQueriesOfABlock;
    return {c, nearest_power(p.seqlen_q), nearest_power(p.seqlen_k),
            blocks >= kBlocksWhenFull * device.multiprocessors};
}

// The rows of the width's own that serve a kernel.
template <class Visit>
void visit_alternatives(const KernelConfig& c, Visit visit) {
    if (c.converts_kv) return;  // the tables alone have tiles for it
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

std::string tuned_device(const DeviceFacts& device) {
    std::string text = device.name + "/" + std::to_string(device.architecture);
    std::ranges::replace_if(
        text, [](unsigned char c) { return c <= ' ' || c > '~'; }, '_');
    return text;
}

Launch measured_or(const Launch& table, const Problem& p, const DeviceFacts& device, TunedTiles tiles) {
    if (tiles.empty() || p.batch_invariant) return table;
    const Subject subject = subject_of(table.config, p, device);
    for (const TunedTile& tuned : tiles) {
        if (tuned.subject != subject || !is_alternative(tuned.tile, table.config)) continue;
        if (auto launch = with_tile(table.config, tuned.tile, device)) {
            launch->why = tuned.why.c_str();
            launch->measured = true;
            return *launch;
        }
    }
    return table;
}

std::vector<TunedTile> alternatives_of(const Launch& planned, const Problem& p, const DeviceFacts& device) {
    std::vector<TunedTile> list;
    if (p.batch_invariant) return list;
    const auto add = [&](const Tile& tile) {
        const bool known = std::ranges::any_of(list, [&](const TunedTile& t) { return same_sizes(t.tile, tile); });
        if (known || !with_tile(planned.config, tile, device)) return;
        TunedTile tuned;
        tuned.version = FLASHTILE_VERSION_STRING;
        tuned.device = tuned_device(device);
        tuned.subject = subject_of(planned.config, p, device);
        tuned.tile = tile;
        tuned.batch = p.batch;
        tuned.heads = p.heads;
        tuned.kv_heads = p.kv_heads;
        list.push_back(std::move(tuned));
    };
    add(tile_of(planned.config));
    visit_alternatives(planned.config, add);
    if (list.size() == 1) list.clear();
    return list;
}

}  // namespace flashtile::gpu
