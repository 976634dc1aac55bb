// tuned_tiles.cpp: see tuned_tiles.h.
#include "cuda/tuned_tiles.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "core/snapshots.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/nvrtc.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

using List = std::vector<TunedTile>;

struct Snapshot {
    List tiles;
    std::string why_not;  // the file is not used
};
constinit Snapshots<Snapshot> snapshots;

Snapshot from_file() {
    TunedTileLines file = kept_choices();
    Snapshot read{{}, std::move(file.why_not)};
    for (const std::string& line : file.lines)
        if (auto tile = parse_tuned_tile(line)) read.tiles.push_back(*std::move(tile));
    return read;
}

const Snapshot& snapshot() {
    return snapshots.get(from_file);
}

List those_on(const DeviceFacts& device, const List& tiles) {
    List list;
    const std::string name = tuned_device(device);
    std::ranges::copy_if(tiles, std::back_inserter(list), [&](const TunedTile& tile) {
        return tile.device == name && tile.version == FLASHTILE_VERSION_STRING;
    });
    if (!list.empty() && !why_no_nvrtc().empty()) list.clear();
    return list;
}

// What a device's calls plan from: those of a snapshot that are its own.
struct Published {
    const Snapshot* of;
    List list;
    const Published* before;
};
struct PublishedLists {
    std::vector<std::atomic<const Published*>> of_device =
        std::vector<std::atomic<const Published*>>(static_cast<std::size_t>(device_count()));
};
constinit PerProcess<PublishedLists> published;

bool replaces(const TunedTile& a, const TunedTile& b) {
    return a.version == b.version && a.device == b.device && a.subject == b.subject;
}

}  // namespace

TunedTileLines kept_choices() {
    if (!environment("FLASHTILE_NO_CHOICES").empty()) return {{}, "FLASHTILE_NO_CHOICES is set"};
    return read_tuned_tiles(cache_folder());
}

void edit_kept_choices(const std::function<void(std::vector<std::string>&)>& edit) {
    const std::string why_not = edit_tuned_tiles(cache_folder(), edit);
    if (!why_not.empty())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "the tuned tiles in " + (cache_folder() / kTunedTilesFile).string() +
                                                    " cannot be written: " + why_not);
}

TunedTiles tuned_tiles_for(const Device& device) {
    auto& slot = published.get().of_device[static_cast<std::size_t>(device.ordinal())];
    const Snapshot& now = snapshot();
    const Published* known = slot.load(std::memory_order_acquire);
    if (known != nullptr && known->of == &now) return known->list;
    auto fresh = std::make_unique<Published>(Published{&now, those_on(device.facts(), now.tiles), known});
    while (!slot.compare_exchange_weak(fresh->before, fresh.get(), std::memory_order_acq_rel)) {
    }
    return fresh.release()->list;
}

List tuned_tiles_on(const DeviceFacts& device) {
    return those_on(device, snapshot().tiles);
}

void use_tuned_tile(std::string_view text, bool keep) {
    const std::optional<TunedTile> tile = parse_tuned_tile(text);
    if (!tile)
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "choice is '" + std::string(text) + "', allowed is a line that flashtile_plan_report gives");
    snapshots.publish([&](const Snapshot* before) {
        Snapshot next = before != nullptr ? *before : from_file();
        std::erase_if(next.tiles, [&](const TunedTile& old) { return replaces(*tile, old); });
        next.tiles.push_back(*tile);
        return next;
    });
    if (!keep) return;
    edit_kept_choices([&](std::vector<std::string>& lines) {
        std::erase_if(lines, [&](const std::string& line) {
            const auto old = parse_tuned_tile(line);
            return old && replaces(*tile, *old);
        });
        lines.push_back(to_text(*tile));
    });
}

void forget_tuned_tiles(bool kept) {
    snapshots.publish([](const Snapshot* before) { return Snapshot{{}, before != nullptr ? before->why_not : ""}; });
    if (kept) edit_kept_choices([](std::vector<std::string>& lines) { lines.clear(); });
}

TunedTilesState tuned_tiles_state() {
    const Snapshot& now = snapshot();
    return {cache_folder() / kTunedTilesFile, now.why_not, now.tiles};
}

}  // namespace flashtile::gpu
