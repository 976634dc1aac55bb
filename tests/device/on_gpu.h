// on_gpu.h: a test that needs a GPU; skipped, and reported so, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "conformance/target.h"
#include "gpu_resources/gpu_resources.h"

namespace flashtile::device_tests {

class OnGpu : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = why_not(conformance::cuda_target()); !reason.empty()) GTEST_SKIP() << reason;
    }
};

inline const device kGpu = conformance::cuda_target().where;

// Whether the GPU is one that has kernels of its own, on wgmma and TMA.
inline bool on_hopper() {
    return gpu::device(kGpu.id).facts().architecture == 90;
}

}  // namespace flashtile::device_tests
