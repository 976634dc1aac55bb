// info.cpp: see info.h.
#include "cuda/info.h"

#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "cpu/tuned_blocks.h"
#include "cuda/device.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/images.h"
#include "cuda/tuned_tiles.h"

namespace flashtile::gpu {
namespace {

template <class List>
Members list_of(const List& values) {
    Members members;
    for (const auto& value : values) members.raw(json(value));
    return members;
}

Members driver_info() {
    const std::string why_not = why_no_driver();
    Members info;
    info.add("found", why_not.empty());
    if (why_not.empty())
        info.add("path", driver().path).add("cuda", version_text(driver().version));
    else
        info.add("why_not", why_not);
    return info;
}

Members devices_info() {
    Members list;
    if (!why_no_driver().empty()) return list;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
        const DeviceFacts facts = facts_of(ordinal);
        list.raw(Members()
                     .add("ordinal", ordinal)
                     .add("name", facts.name)
                     .add("target", target_name(facts.architecture))
                     .add("multiprocessors", facts.multiprocessors)
                     .add("shared_memory_per_block", facts.shared_memory_per_block)
                     .add("shared_memory_per_multiprocessor", facts.shared_memory_per_multiprocessor)
                     .add("l2_bytes", facts.l2_bytes)
                     .add("note", ptx_note(facts.architecture))
                     .in("{}"));
    }
    return list;
}

Members nvrtc_info() {
    const std::string why_not = why_no_nvrtc();
    Members info;
    info.add("found", why_not.empty());
    if (why_not.empty()) {
        std::vector<std::string> targets;
        for (const int architecture : nvrtc().architectures()) targets.push_back(target_name(architecture));
        info.add("path", nvrtc().path()).add("version", version_text(nvrtc().version()));
        info.add("targets", list_of(targets), "[]");
    } else {
        info.add("why_not", why_not);
    }
    return info.add("looked", list_of(nvrtc_looked()), "[]");
}

Members cache_info() {
    const std::filesystem::path& folder = disk_cache().folder();
    std::error_code error;
    const bool there = std::filesystem::exists(folder, error);
    const DiskCache::Size size = disk_cache().size();
    Members info;
    info.add("folder", folder.string()).add("kernels", size.kernels).add("bytes", size.bytes);
    info.add("limit", disk_cache().limit());
    // A folder that is not there yet is made with its first kernel.
    return info.add("why_not", there || folder.empty() ? disk_cache().why_not() : "");
}

Members tuned_tiles_info() {
    const TunedTilesState state = tuned_tiles_state();
    Members list;
    for (const TunedTile& tuned : state.tiles)
        list.raw(Members()
                     .add("device", tuned.device)
                     .add("version", tuned.version)
                     .add("for", describe(tuned.subject))
                     .add("tile", describe(tuned.tile))
                     .add("why", tuned.why)
                     .in("{}"));
    for (const cpu::TunedBlocks& tuned : cpu::all_tuned_blocks())
        list.raw(Members()
                     .add("device", tuned.cpu)
                     .add("version", tuned.version)
                     .add("for", cpu::describe(tuned.subject))
                     .add("tile", std::to_string(tuned.rows) + " rows a task")
                     .add("why", tuned.why)
                     .in("{}"));
    return Members().add("file", state.file.string()).add("why_not", state.why_not).add("list", list, "[]");
}

Members bundles_info() {
    Members list;
    try {
        for (const auto& bundle : bundles())
            list.raw(Members()
                         .add("path", bundle->path())
                         .add("kernels", std::uint64_t{bundle->kernels()})
                         .add("damaged", std::uint64_t{bundle->damaged()})
                         .add("targets", list_of(bundle->targets()), "[]")
                         .in("{}"));
    } catch (const Error& error) {
        list.raw(Members().add("why_not", error.what()).in("{}"));
    }
    if (const std::string why_not = why_no_own_bundle(); !why_not.empty())
        list.raw(Members().add("why_not", why_not).in("{}"));
    return list;
}

}  // namespace

std::string info_json() {
    return Members()
        .add("driver", driver_info(), "{}")
        .add("devices", devices_info(), "[]")
        .add("nvrtc", nvrtc_info(), "{}")
        .add("cache", cache_info(), "{}")
        .add("choices", tuned_tiles_info(), "{}")
        .add("bundles", bundles_info(), "[]")
        .in("{}");
}

}  // namespace flashtile::gpu
