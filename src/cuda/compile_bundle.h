// compile_bundle.h: compiling kernels ahead of time, for GPUs that need not be here.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "flashtile/flashtile.h"

namespace flashtile::gpu {

// Compiles what the items need and writes it as one bundle. progress(done, total) is called after each kernel, from one
// thread at a time. Throws INVALID_ARGUMENT for an item or a path that cannot be, UNSUPPORTED without an NVRTC that
// knows the architectures.
void compile_bundle(const std::string& path, std::span<const flashtile_bundle_item> items,
                    const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace flashtile::gpu
