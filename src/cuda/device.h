// device.h: one GPU of this process: its facts and its primary context, the one that PyTorch and the CUDA runtime use.
#pragma once

#include "cuda/device_facts.h"
#include "cuda/driver.h"

namespace flashtile::gpu {

class Device {
public:
    int ordinal() const { return ordinal_; }
    const DeviceFacts& facts() const { return facts_; }
    CUcontext context() const { return context_; }

private:
    friend const Device& device(int ordinal);
    int ordinal_ = 0;
    DeviceFacts facts_;
    CUcontext context_ = nullptr;
};

// Devices of this process. Throws UNSUPPORTED without a driver.
int device_count();

// A device's facts, without making a context on it.
DeviceFacts facts_of(int ordinal);

// Retains the primary context once. Throws UNSUPPORTED without a driver and INVALID_ARGUMENT for an ordinal that is not
// there.
const Device& device(int ordinal);

// Makes a device's primary context current for a scope, and restores what was current before.
class ContextScope {
public:
    explicit ContextScope(const Device& device);
    ~ContextScope();
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;

private:
    bool pushed_ = false;
};

}  // namespace flashtile::gpu
