// guarded_tensor.h: memory for one tensor in a layout of any kind, poisoned with NaN bits before, after and between its
// elements, so that a stray write shows and a stray read spoils a result. It can also end flush with a page that may
// not be touched, or start right after one. A tensor on a GPU has a copy of all this there, which is what its view is
// of: values are set and read in host memory, and copied to the GPU and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <span>
#include <vector>

#include "gpu_resources/gpu_resources.h"

namespace flashtile::conformance {

// Where the elements of a tensor lie.
struct Layout {
    bool heads_before_rows = false;  // the two dimensions ahead of the last change places: (b, s, h, d) as b, h, s, d
    std::int64_t row_gap = 0;        // poisoned elements after every innermost run
    bool broadcast_first = false;    // stride 0: every batch entry is the same memory (inputs only)
    bool broadcast_heads = false;    // likewise for the dimension ahead of the last
    bool nonsense_strides = false;   // where a dimension's size is 1

    bool broadcasts() const { return broadcast_first || broadcast_heads; }
};

enum class Guard { nan_bands, page_after, page_before };

std::size_t bytes_of(dtype type);

class GuardedTensor {
public:
    GuardedTensor() = default;
    GuardedTensor(dtype type, std::vector<std::int64_t> shape, Layout layout = {}, Guard guard = Guard::nan_bands,
                  device where = cpu);

    bool present() const { return memory_ != nullptr; }
    tensor view() const;                               // absent where this is
    tensor view_of_columns(std::int64_t count) const;  // of the first ones

    // Copies every byte to the GPU, or back once all work there is done. They do nothing for a tensor on the CPU.
    void upload();
    void download();

    std::size_t size() const { return offsets_.size(); }
    const std::vector<std::int64_t>& shape() const { return shape_; }

    // Elements in row-major order, rounded to the type on the way in.
    void set(std::size_t element, double value);
    double get(std::size_t element) const;
    void fill(std::span<const double> values);
    std::vector<double> values() const;

    // Remembers every byte; `unchanged` says whether each is still the same.
    void remember();
    bool unchanged() const;

    // True if every byte still has its poison, but for those of elements that `written` flags (all, where empty).
    bool poison_intact(const std::vector<bool>& written = {}) const;

    void poison();

private:
    struct Unmap {
        std::size_t bytes;
        void operator()(std::byte* base) const;
    };

    std::byte* address(std::size_t element) const { return origin_ + offsets_[element] * width_; }

    dtype type_ = fp32;
    std::ptrdiff_t width_ = 0;
    std::vector<std::int64_t> shape_;
    std::vector<std::int64_t> strides_;
    std::vector<std::ptrdiff_t> offsets_;  // of each element, in elements
    std::unique_ptr<std::byte[], Unmap> memory_{nullptr, Unmap{0}};
    std::span<std::byte> usable_;  // without the untouchable pages
    std::byte* origin_ = nullptr;
    device where_ = cpu;
    gpu_resources::Buffer twin_;  // of usable_
    std::vector<std::byte> remembered_;
};

}  // namespace flashtile::conformance
