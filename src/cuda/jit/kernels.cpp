// kernels.cpp: see kernels.h.
#include "cuda/jit/kernels.h"

#include <mutex>

#include "cuda/jit/compile.h"
#include "cuda/jit/kernel_table.h"
#include "cuda/jit/load.h"

namespace flashtile::cuda {

const LoadedKernel& kernel_for(const KernelConfig& config, const Device& device, int shared_memory) {
    static auto& table = *new KernelTable;
    const KernelKey key{config, device.ordinal(), shared_memory};
    if (const LoadedKernel* kernel = table.find(key)) return *kernel;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (const LoadedKernel* kernel = table.find(key)) return *kernel;
    return *table.insert(key, load(compile(config, device.facts().architecture).image, config, device, shared_memory));
}

}  // namespace flashtile::cuda
