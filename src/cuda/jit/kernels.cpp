// kernels.cpp: see kernels.h.
#include "cuda/jit/kernels.h"

#include <mutex>

#include "core/per_process.h"
#include "cuda/jit/images.h"
#include "cuda/jit/kernel_table.h"
#include "cuda/jit/load.h"
#include "cuda/jit/render.h"
#include "cuda/jit/single_flight.h"

namespace flashtile::gpu {
namespace {

struct Kernels {
    KernelTable table;
    std::mutex inserting;
    SingleFlight<const LoadedKernel*> flights;
};
constinit PerProcess<Kernels> kernels;

const LoadedKernel* make(const KernelKey& key, const Device& device) {
    KernelTable& table = kernels.get().table;
    if (const LoadedKernel* kernel = table.find(key)) return kernel;  // by a flight that has just ended
    const LoadedKernel kernel =
        load(image_for(key.config, device.facts().architecture), key.config, device, key.shared_memory);
    const std::lock_guard lock(kernels.get().inserting);
    return table.insert(key, kernel);
}

}  // namespace

const LoadedKernel& kernel_for(const KernelConfig& config, const Device& device, int shared_memory) {
    const KernelKey key{config, device.ordinal(), shared_memory};
    if (const LoadedKernel* kernel = kernels.get().table.find(key)) return *kernel;
    const std::string name =
        to_string(config) + " " + std::to_string(device.ordinal()) + " " + std::to_string(shared_memory);
    return *kernels.get().flights.run(name, [&] { return make(key, device); });
}

}  // namespace flashtile::gpu
