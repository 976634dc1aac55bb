// images.cpp: see images.h.
#include "cuda/jit/images.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/own_folder.h"
#include "cuda/jit/render.h"
#include "cuda/jit/single_flight.h"

namespace flashtile::gpu {
namespace {

using BundleList = std::vector<std::shared_ptr<const Bundle>>;

struct State {
    std::mutex mutex;                           // of `memory`
    std::map<std::string, std::string> memory;  // where the disk does not take them

    DiskCache disk{cache_folder()};
    SingleFlight<std::string> flights;
};
constinit PerProcess<State> state;

// The bundles that the program has loaded, the last first. They stay for good, and in forked children too.
struct LoadedBundle {
    std::shared_ptr<const Bundle> bundle;
    const LoadedBundle* next;
};
constinit std::atomic<const LoadedBundle*> loaded_bundles{nullptr};

struct EnvironmentBundle {
    std::shared_ptr<const Bundle> bundle;  // null: none is named

    EnvironmentBundle() {
        if (const std::string path = environment("FLASHTILE_BUNDLE"); !path.empty())
            bundle = std::make_shared<const Bundle>(path);
    }
};
constinit PerProcess<EnvironmentBundle> environment_bundle;

// What lies beside the library, as in the Python wheel. It was not asked for by name, so that one of another version,
// or without a readable index, is no error.
struct OwnBundle {
    std::shared_ptr<const Bundle> bundle;  // null: there is none, or
    std::string why_not;

    OwnBundle() {
        const std::filesystem::path folder = own_folder(), path = folder / "kernels.ftb";
        std::error_code error;
        if (folder.empty() || !std::filesystem::exists(path, error)) return;
        try {
            bundle = std::make_shared<const Bundle>(path);
        } catch (const Error& wrong) {
            why_not = wrong.what();
        }
    }
};
constinit PerProcess<OwnBundle> own_bundle;

// A damaged kernel of a bundle that nobody named is compiled where it can be, and `flashtile info` counts it. Throws
// for any other damaged one.
std::optional<std::string> bundled(const std::string& key) {
    for (const auto& bundle : bundles()) {
        try {
            if (std::optional<std::string> image = bundle->find(key)) return image;
        } catch (const Error&) {
            if (bundle != own_bundle.get().bundle || !why_no_nvrtc().empty()) throw;
        }
    }
    return std::nullopt;
}

void say_once(const std::string& note) {
    static std::once_flag said;
    if (!note.empty() && ::isatty(STDERR_FILENO) == 1)
        std::call_once(said, [&] { std::fprintf(stderr, "flashtile: %s\n", note.c_str()); });
}

std::string compile_and_say(const KernelConfig& config, int architecture) {
    say_once(ptx_note(architecture));
    const auto start = std::chrono::steady_clock::now();
    std::string image = compile(config, architecture).image;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (took.count() > 1.0 && ::isatty(STDERR_FILENO) == 1)
        std::fprintf(stderr, "flashtile: compiled a kernel for %s in %.1f s, once: %s\n",
                     target_name(architecture).c_str(), took.count(), to_string(config).c_str());
    return image;
}

std::string no_way(const KernelConfig& config, int architecture) {
    std::string text = why_no_nvrtc() + ". Needed is " + to_string(config) + " for " + target_name(architecture);
    for (const auto& bundle : bundles())
        text +=
            "; the bundle " + bundle->path() + " has " + std::to_string(bundle->kernels()) + " kernels, not this one";
    return text;
}

// `make` compiles what neither memory nor disk has.
std::string kept_or_made(const KernelConfig& config, int architecture,
                         std::string (*make)(const KernelConfig&, int architecture)) {
    const Nvrtc& compiler = nvrtc();
    const std::string key =
        key_of(program_for(config, architecture, compiler.nearest(architecture)), compiler.version());
    {
        const std::lock_guard lock(state.get().mutex);
        if (const auto found = state.get().memory.find(key); found != state.get().memory.end()) return found->second;
    }
    if (std::optional<std::string> image = state.get().disk.load(key)) return *std::move(image);
    std::string image = make(config, architecture);
    if (!state.get().disk.store(key, image)) {
        const std::lock_guard lock(state.get().mutex);
        state.get().memory[key] = image;
    }
    return image;
}

}  // namespace

std::string image_for(const KernelConfig& config, int architecture) {
    return state.get().flights.run(to_string(config) + target_name(architecture), [&] {
        if (!bundles().empty())
            if (std::optional<std::string> image = bundled(key_of(program_for(config, architecture))))
                return *std::move(image);
        if (!why_no_nvrtc().empty()) throw Error(FLASHTILE_UNSUPPORTED, no_way(config, architecture));
        return kept_or_made(config, architecture, compile_and_say);
    });
}

std::string image_for_bundle(const KernelConfig& config, int architecture) {
    return state.get().flights.run("for a bundle " + to_string(config) + target_name(architecture), [&] {
        return kept_or_made(config, architecture,
                            [](const KernelConfig& what, int target) { return compile(what, target).image; });
    });
}

void load_bundle(const std::string& path) {
    auto* fresh = new LoadedBundle{std::make_shared<const Bundle>(path), loaded_bundles.load()};
    while (!loaded_bundles.compare_exchange_weak(fresh->next, fresh)) {
    }
}

BundleList bundles() {
    BundleList list;
    for (const LoadedBundle* one = loaded_bundles.load(); one != nullptr; one = one->next) list.push_back(one->bundle);
    if (const auto& named = environment_bundle.get().bundle) list.push_back(named);
    if (const auto& own = own_bundle.get().bundle) list.push_back(own);
    return list;
}

std::string why_no_own_bundle() {
    return own_bundle.get().why_not;
}

const DiskCache& disk_cache() {
    return state.get().disk;
}

}  // namespace flashtile::gpu
