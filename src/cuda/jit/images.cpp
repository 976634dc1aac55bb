// images.cpp: see images.h.
#include "cuda/jit/images.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/render.h"
#include "cuda/jit/single_flight.h"

namespace flashtile::gpu {
namespace {

using BundleList = std::vector<std::shared_ptr<const Bundle>>;

// All that this process knows; never destroyed, since a call may come as late as a static destructor.
struct State {
    std::mutex mutex;  // of the three below
    bool environment_read = false;
    BundleList bundles;
    std::map<std::string, std::string> memory;  // where the disk does not take them

    DiskCache disk{cache_folder()};
    SingleFlight<std::string> flights;
};

State& state() {
    static auto* once = new State;
    return *once;
}

std::string compile_and_say(const KernelConfig& config, int architecture) {
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

std::string cached_or_compiled(const KernelConfig& config, int architecture) {
    const Nvrtc& compiler = nvrtc();
    const std::string key =
        key_of(program_for(config, architecture, compiler.architectures().back()), compiler.version());
    {
        const std::lock_guard lock(state().mutex);
        if (const auto found = state().memory.find(key); found != state().memory.end()) return found->second;
    }
    if (std::optional<std::string> image = state().disk.load(key)) return *std::move(image);
    std::string image = compile_and_say(config, architecture);
    if (!state().disk.store(key, image)) {
        const std::lock_guard lock(state().mutex);
        state().memory[key] = image;
    }
    return image;
}

}  // namespace

std::string image_for(const KernelConfig& config, int architecture) {
    return state().flights.run(to_string(config) + target_name(architecture), [&] {
        if (const BundleList list = bundles(); !list.empty()) {
            const std::string key = key_of(program_for(config, architecture));
            for (const auto& bundle : list)
                if (std::optional<std::string> image = bundle->find(key)) return *std::move(image);
        }
        if (!why_no_nvrtc().empty()) throw Error(FLASHTILE_UNSUPPORTED, no_way(config, architecture));
        return cached_or_compiled(config, architecture);
    });
}

void load_bundle(const std::string& path) {
    auto bundle = std::make_shared<const Bundle>(path);
    const std::lock_guard lock(state().mutex);
    state().bundles.insert(state().bundles.begin(), std::move(bundle));
}

BundleList bundles() {
    const std::lock_guard lock(state().mutex);
    if (!state().environment_read) {
        // Where this throws, the next caller tries again and is told the same.
        if (const char* path = std::getenv("FLASHTILE_BUNDLE"); path != nullptr && *path != '\0')
            state().bundles.push_back(std::make_shared<const Bundle>(path));
        state().environment_read = true;
    }
    return state().bundles;
}

const DiskCache& disk_cache() {
    return state().disk;
}

}  // namespace flashtile::gpu
