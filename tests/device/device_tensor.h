// device_tensor.h: a contiguous tensor that lies in a GPU's memory only, too large for a copy on the host.
#pragma once

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <vector>

#include "gpu_resources/gpu_resources.h"

namespace flashtile::device_tests {

class DeviceTensor {
public:
    // Poisoned: every byte is 0xFF, a NaN in every type.
    DeviceTensor(dtype type, std::vector<std::int64_t> shape);

    tensor view() const;
    std::int64_t size() const { return size_; }

    // Standard normal numbers, repeated with a period that divides no row.
    void fill_normal(std::uint64_t seed);

    // Elements by their row-major number.
    std::vector<double> read(std::int64_t first, std::int64_t count) const;
    void write(std::int64_t first, const std::vector<double>& values);

private:
    dtype type_;
    std::vector<std::int64_t> shape_;
    std::int64_t size_;
    gpu_resources::Buffer memory_;
};

}  // namespace flashtile::device_tests
