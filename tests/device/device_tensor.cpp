// device_tensor.cpp: see device_tensor.h.
#include "device/device_tensor.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "conformance/guarded_tensor.h"
#include "conformance/random_source.h"

namespace flashtile::device_tests {
namespace {

constexpr std::int64_t kPeriod = (1 << 22) + 43;

// Values in a contiguous row of the host, which GuardedTensor rounds and reads in any type.
conformance::GuardedTensor host_row(dtype type, std::int64_t count) {
    return {type, {count}};
}

std::span<std::byte> bytes_of(const conformance::GuardedTensor& row, dtype type) {
    return {static_cast<std::byte*>(row.view().raw().data), row.size() * conformance::bytes_of(type)};
}

}  // namespace

DeviceTensor::DeviceTensor(dtype type, std::vector<std::int64_t> shape)
    : type_(type),
      shape_(std::move(shape)),
      size_(std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>())),
      memory_(static_cast<std::size_t>(size_) * conformance::bytes_of(type)) {
    memory_.fill(std::byte{0xFF});
}

tensor DeviceTensor::view() const {
    return flashtile::view(memory_.data(), type_, shape_, v0::cuda());
}

void DeviceTensor::fill_normal(std::uint64_t seed) {
    conformance::RandomSource random(seed);
    std::vector<double> values(static_cast<std::size_t>(std::min(kPeriod, size_)));
    for (double& value : values) value = random.normal();
    write(0, values);
    memory_.repeat(values.size() * conformance::bytes_of(type_));
}

std::vector<double> DeviceTensor::read(std::int64_t first, std::int64_t count) const {
    const auto row = host_row(type_, count);
    memory_.download(bytes_of(row, type_), static_cast<std::size_t>(first) * conformance::bytes_of(type_));
    return row.values();
}

void DeviceTensor::write(std::int64_t first, const std::vector<double>& values) {
    auto row = host_row(type_, static_cast<std::int64_t>(values.size()));
    row.fill(values);
    memory_.upload(bytes_of(row, type_), static_cast<std::size_t>(first) * conformance::bytes_of(type_));
}

}  // namespace flashtile::device_tests
