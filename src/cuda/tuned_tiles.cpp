// tuned_tiles.cpp: see tuned_tiles.h.
#include "cuda/tuned_tiles.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/nvrtc.h"
#include "cuda/tuned_tiles_file.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

using List = std::vector<TunedTile>;

// The tuned tiles of this process at some time. Whoever changes them publishes new ones, so that nobody waits for a
// lock, which another thread might hold when the process forks; the old ones stay, since a call may still be planning
// from them.
struct Snapshot {
    List tiles;
    std::string why_not;  // the file is not used
    const Snapshot* before = nullptr;
};
constinit std::atomic<const Snapshot*> current{nullptr};  // null: the file has not been read

Snapshot from_file() {
    if (!environment("FLASHTILE_NO_CHOICES").empty()) return {{}, "FLASHTILE_NO_CHOICES is set"};
    TunedTileLines file = read_tuned_tiles(cache_folder());
    Snapshot read{{}, std::move(file.why_not)};
    for (const std::string& line : file.lines)
        if (auto tile = parse_tuned_tile(line)) read.tiles.push_back(*std::move(tile));
    return read;
}

// Publishes what `next` makes of the present snapshot, or of null.
template <class Next>
const Snapshot& publish(Next next) {
    const Snapshot* before = current.load(std::memory_order_acquire);
    while (true) {
        auto fresh = std::make_unique<Snapshot>(next(before));
        fresh->before = before;
        if (current.compare_exchange_weak(before, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    }
}

const Snapshot& snapshot() {
    if (const Snapshot* known = current.load(std::memory_order_acquire)) return *known;
    return publish([](const Snapshot* before) { return before != nullptr ? *before : from_file(); });
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

void write(const std::function<void(std::vector<std::string>&)>& edit) {
    const std::string why_not = edit_tuned_tiles(cache_folder(), edit);
    if (!why_not.empty())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "the tuned tiles in " + (cache_folder() / kTunedTilesFile).string() +
                                                    " cannot be written: " + why_not);
}

}  // namespace

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
    publish([&](const Snapshot* before) {
        Snapshot next = before != nullptr ? *before : from_file();
        std::erase_if(next.tiles, [&](const TunedTile& old) { return replaces(*tile, old); });
        next.tiles.push_back(*tile);
        return next;
    });
    if (!keep) return;
    write([&](std::vector<std::string>& lines) {
        std::erase_if(lines, [&](const std::string& line) {
            const auto old = parse_tuned_tile(line);
            return old && replaces(*tile, *old);
        });
        lines.push_back(to_text(*tile));
    });
}

void forget_tuned_tiles(bool kept) {
    publish([](const Snapshot* before) { return Snapshot{{}, before != nullptr ? before->why_not : ""}; });
    if (kept) write([](std::vector<std::string>& lines) { lines.clear(); });
}

TunedTilesState tuned_tiles_state() {
    const Snapshot& now = snapshot();
    return {cache_folder() / kTunedTilesFile, now.why_not, now.tiles};
}

}  // namespace flashtile::gpu
