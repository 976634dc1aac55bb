// guarded_tensor.cpp: layouts, poison and pages.
#include "conformance/guarded_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "oracle/precision.h"

namespace flashtile::conformance {
namespace {

constexpr std::byte kPoison{0xFF};         // a NaN in every floating-point type
constexpr std::size_t kBand = 64 * 4 + 4;  // bytes of poison around a tensor; leaves it aligned to its elements only
constexpr std::int64_t kNonsense = -7'777'777'777;

std::size_t round_up(std::size_t n, std::size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t bytes_of(dtype type) {
    switch (type) {
        case dtype::fp32:
        case dtype::int32:
            return 4;
        case dtype::fp16:
        case dtype::bf16:
            return 2;
        case dtype::int64:
            return 8;
        case dtype::boolean:
        case dtype::fp8_e4m3:
            break;
    }
    return 1;
}

void GuardedTensor::Unmap::operator()(std::byte* base) const {
    munmap(base, bytes);
}

GuardedTensor::GuardedTensor(dtype type, std::vector<std::int64_t> shape, Layout layout, Guard guard, device where)
    : type_(type), width_(static_cast<std::ptrdiff_t>(bytes_of(type))), shape_(std::move(shape)), where_(where) {
    const std::size_t rank = shape_.size();
    std::vector<std::size_t> order(rank);  // innermost first
    std::iota(order.rbegin(), order.rend(), 0);
    if (layout.heads_before_rows && rank >= 3) std::swap(order[1], order[2]);

    strides_.assign(rank, 0);
    std::int64_t span = 1;
    for (std::size_t n = 0; n < rank; ++n) {
        const std::size_t dim = order[n];
        const bool broadcast =
            (layout.broadcast_first && dim == 0) || (layout.broadcast_heads && rank >= 2 && dim == rank - 2);
        strides_[dim] = broadcast ? 0 : span;
        if (!broadcast) span *= std::max<std::int64_t>(shape_[dim], 1);
        if (n == 0) span += layout.row_gap;
    }

    const std::int64_t count = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
    offsets_.reserve(static_cast<std::size_t>(count));
    std::ptrdiff_t last = 0;
    std::vector<std::int64_t> place(rank, 0);
    for (std::int64_t element = 0; element < count; ++element) {
        std::ptrdiff_t offset = 0;
        for (std::size_t n = 0; n < rank; ++n) offset += place[n] * strides_[n];
        offsets_.push_back(offset);
        last = std::max(last, offset);
        for (std::size_t n = rank; n-- > 0 && ++place[n] == shape_[n];) place[n] = 0;
    }
    if (layout.nonsense_strides)
        for (std::size_t n = 0; n < rank; ++n)
            if (shape_[n] == 1) strides_[n] = kNonsense;

    const std::size_t needed = static_cast<std::size_t>(count == 0 ? 0 : last + 1) * bytes_of(type);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const bool on_gpu = where.type == FLASHTILE_CUDA;
    const std::size_t margin = on_gpu ? page : 0;  // a page of poison, where none can be made untouchable
    const std::size_t usable = round_up(needed + 2 * kBand, page) + 2 * margin;
    void* base = mmap(nullptr, usable + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    memory_ = {static_cast<std::byte*>(base), Unmap{usable + 2 * page}};
    usable_ = {memory_.get() + page, usable};
    if (mprotect(usable_.data(), usable, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
    switch (guard) {
        case Guard::nan_bands:
            origin_ = usable_.data() + margin + round_up(kBand, bytes_of(type));
            break;
        case Guard::page_after:
            origin_ = usable_.data() + (usable - margin - needed);
            break;
        case Guard::page_before:
            origin_ = usable_.data() + margin;
            break;
    }
    if (on_gpu) twin_ = gpu_resources::Buffer(usable, where.id);
    poison();
}

void GuardedTensor::poison() {
    std::fill(usable_.begin(), usable_.end(), kPoison);
}

tensor GuardedTensor::view() const {
    return present() ? view_of_columns(shape_.empty() ? 1 : shape_.back()) : tensor{};
}

tensor GuardedTensor::view_of_columns(std::int64_t count) const {
    const std::byte* base = twin_.size() != 0 ? static_cast<const std::byte*>(twin_.data()) : usable_.data();
    std::vector<std::int64_t> shape = shape_;
    if (!shape.empty()) shape.back() = count;
    return flashtile::view(base + (origin_ - usable_.data()), type_, shape, strides_, where_);
}

void GuardedTensor::upload() {
    if (twin_.size() != 0) twin_.upload(usable_);
}

void GuardedTensor::download() {
    if (twin_.size() != 0) twin_.download(usable_);
}

void GuardedTensor::set(std::size_t element, double value) {
    const auto store = [&](auto stored) { std::memcpy(address(element), &stored, sizeof stored); };
    const float single = static_cast<float>(value);
    switch (type_) {
        case dtype::fp32:
            return store(single);
        case dtype::fp16:
            return store(oracle::to_fp16_bits(single));
        case dtype::bf16:
            return store(oracle::to_bf16_bits(single));
        case dtype::int32:
            return store(static_cast<std::int32_t>(value));
        case dtype::int64:
            return store(static_cast<std::int64_t>(value));
        case dtype::boolean:
            return store(static_cast<std::uint8_t>(value != 0.0));
        case dtype::fp8_e4m3:
            return store(oracle::to_e4m3_bits(single));
    }
    throw std::logic_error("no such tensor is made here");
}

double GuardedTensor::get(std::size_t element) const {
    const auto load = [&](auto stored) {
        std::memcpy(&stored, address(element), sizeof stored);
        return stored;
    };
    switch (type_) {
        case dtype::fp32:
            return static_cast<double>(load(0.0f));
        case dtype::fp16:
            return static_cast<double>(oracle::from_fp16_bits(load(std::uint16_t{})));
        case dtype::bf16:
            return static_cast<double>(oracle::from_bf16_bits(load(std::uint16_t{})));
        case dtype::int32:
            return load(std::int32_t{});
        case dtype::int64:
            return static_cast<double>(load(std::int64_t{}));
        case dtype::boolean:
            return load(std::uint8_t{});
        case dtype::fp8_e4m3:
            return static_cast<double>(oracle::from_e4m3_bits(load(std::uint8_t{})));
    }
    throw std::logic_error("no such tensor is made here");
}

void GuardedTensor::fill(std::span<const double> values) {
    for (std::size_t n = 0; n < size(); ++n) set(n, values[n]);
}

std::vector<double> GuardedTensor::values() const {
    std::vector<double> result(size());
    for (std::size_t n = 0; n < size(); ++n) result[n] = get(n);
    return result;
}

void GuardedTensor::remember() {
    remembered_.assign(usable_.begin(), usable_.end());
}

bool GuardedTensor::unchanged() const {
    return std::equal(remembered_.begin(), remembered_.end(), usable_.begin(), usable_.end());
}

bool GuardedTensor::poison_intact(const std::vector<bool>& written) const {
    std::vector<bool> allowed(usable_.size(), false);
    const auto width = static_cast<std::size_t>(width_);
    for (std::size_t n = 0; n < size(); ++n) {
        if (!written.empty() && !written[n]) continue;
        const auto first = static_cast<std::size_t>(address(n) - usable_.data());
        for (std::size_t byte = 0; byte < width; ++byte) allowed[first + byte] = true;
    }
    for (std::size_t n = 0; n < usable_.size(); ++n)
        if (!allowed[n] && usable_[n] != kPoison) return false;
    return true;
}

}  // namespace flashtile::conformance
