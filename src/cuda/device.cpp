// device.cpp: see device.h.
#include "cuda/device.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/per_process.h"

namespace flashtile::gpu {
namespace {

int count_devices() {
    int count = 0;
    driver().check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
    return count;
}

int attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    driver().check(driver().cuDeviceGetAttribute(&value, which, device),
                   "cuDeviceGetAttribute " + std::to_string(which));
    return value;
}

CUdevice handle(int ordinal) {
    CUdevice device = 0;
    driver().check(driver().cuDeviceGet(&device, ordinal), "cuDeviceGet " + std::to_string(ordinal));
    return device;
}

// Devices are never given back: a call may come as late as a static destructor, when the driver may be gone.
struct Devices {
    std::mutex mutex;
    std::vector<std::atomic<const Device*>> known = std::vector<std::atomic<const Device*>>(count_devices());
};
constinit PerProcess<Devices> devices;

}  // namespace

int device_count() {
    return static_cast<int>(devices.get().known.size());
}

DeviceFacts facts_of(int ordinal) {
    const CUdevice device = handle(ordinal);
    char name[256] = {};
    driver().check(driver().cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
    return {
        .name = name,
        .architecture = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                        attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        .multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .shared_memory_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        .shared_memory_per_multiprocessor = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        .l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    };
}

const Device& device(int ordinal) {
    Devices& all = devices.get();
    if (ordinal < 0 || ordinal >= device_count())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "device_id is " + std::to_string(ordinal) +
                                                    ", allowed is an ordinal of one of the " +
                                                    std::to_string(device_count()) + " CUDA devices here");
    std::atomic<const Device*>& slot = all.known[ordinal];
    if (const Device* known = slot.load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(all.mutex);
    if (const Device* known = slot.load(std::memory_order_acquire)) return *known;
    auto fresh = std::make_unique<Device>();
    fresh->ordinal_ = ordinal;
    fresh->facts_ = facts_of(ordinal);
    driver().check(driver().cuDevicePrimaryCtxRetain(&fresh->context_, handle(ordinal)),
                   "cuDevicePrimaryCtxRetain of device " + std::to_string(ordinal));
    slot.store(fresh.get(), std::memory_order_release);
    return *fresh.release();
}

ContextScope::ContextScope(const Device& device) {
    CUcontext current = nullptr;
    driver().check(driver().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == device.context()) return;
    driver().check(driver().cuCtxPushCurrent(device.context()), "cuCtxPushCurrent");
    pushed_ = true;
}

ContextScope::~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver().cuCtxPopCurrent(&popped);
}

}  // namespace flashtile::gpu
