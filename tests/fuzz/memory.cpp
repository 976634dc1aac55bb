// memory.cpp: see memory.h.
#include "memory.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace flashtile::fuzz {
namespace {

__extension__ using Wide = __int128;

constexpr std::size_t places = 36;
constexpr std::size_t guard = 64;
constexpr std::size_t total = guard + places * (place_size + guard);

alignas(64) std::array<std::byte, total> memory;
std::array<std::byte, total> remembered;

// Calls visit(offset) with the first byte of every element. What does not move, a stride of 0, is one element.
template <class Visit>
void each_element(const flashtile_tensor& view, Visit visit) {
    if (extent(view).value_or(0) == 0) return;
    const std::size_t size = size_of(view.dtype);
    const auto first = static_cast<std::size_t>(static_cast<std::byte*>(view.data) - memory.data());
    std::array<std::int64_t, FLASHTILE_MAX_RANK> at{};
    for (;;) {
        std::size_t offset = first;
        for (std::size_t n = 0; n < at.size(); ++n)
            if (at[n] != 0) offset += static_cast<std::size_t>(at[n] * view.stride[n]) * size;
        visit(offset);
        int n = view.rank - 1;
        for (; n >= 0; --n) {
            auto& index = at[static_cast<std::size_t>(n)];
            if (view.stride[n] != 0 && ++index < view.shape[n]) break;
            index = 0;
        }
        if (n < 0) return;
    }
}

}  // namespace

std::size_t size_of(std::int32_t dtype) {
    switch (dtype) {
        case FLASHTILE_FP32:
        case FLASHTILE_INT32:
            return 4;
        case FLASHTILE_FP16:
        case FLASHTILE_BF16:
            return 2;
        case FLASHTILE_INT64:
            return 8;
        case FLASHTILE_BOOL:
        case FLASHTILE_FP8_E4M3:
            return 1;
        default:
            return 0;
    }
}

std::optional<std::size_t> extent(const flashtile_tensor& view) {
    const std::size_t size = size_of(view.dtype);
    if (size == 0 || view.rank < 0 || view.rank > FLASHTILE_MAX_RANK || view.data == nullptr) return 0;
    Wide last = 0;
    bool none = false, backwards = false;
    for (int n = 0; n < view.rank; ++n) {
        none |= view.shape[n] <= 0;
        if (view.shape[n] <= 1) continue;
        backwards |= view.stride[n] < 0;
        last += static_cast<Wide>(view.shape[n] - 1) * view.stride[n];
    }
    if (none || backwards) return 0;
    const Wide bytes = (last + 1) * static_cast<Wide>(size);
    const auto room = static_cast<Wide>(memory.data() + total - static_cast<std::byte*>(view.data));
    if (bytes > room) return std::nullopt;
    return static_cast<std::size_t>(bytes);
}

std::byte* place(std::size_t number) {
    return memory.data() + guard + number * (place_size + guard);
}

void fill_memory(std::byte value) {
    std::memset(memory.data(), std::to_integer<int>(value), total);
}

void guard_memory(std::span<const flashtile_tensor* const> tensors) {
    remembered = memory;
    ASAN_POISON_MEMORY_REGION(memory.data(), total);
    for (const flashtile_tensor* view : tensors)
        if (const std::size_t bytes = extent(*view).value_or(0); bytes != 0)
            ASAN_UNPOISON_MEMORY_REGION(view->data, bytes);
}

bool only_changed(std::span<const flashtile_tensor* const> outputs) {
    ASAN_UNPOISON_MEMORY_REGION(memory.data(), total);
    for (const flashtile_tensor* view : outputs)
        each_element(*view, [&](std::size_t offset) {
            std::copy_n(&memory[offset], size_of(view->dtype), &remembered[offset]);
        });
    return std::memcmp(memory.data(), remembered.data(), total) == 0;
}

bool outputs_lie_alone(std::span<const flashtile_tensor* const> outputs,
                       std::span<const flashtile_tensor* const> inputs) {
    std::vector<bool> written(total);
    bool alone = true;
    for (const flashtile_tensor* view : outputs)
        each_element(*view, [&](std::size_t offset) {
            for (std::size_t n = offset; n < offset + size_of(view->dtype); ++n) {
                alone &= !written[n];
                written[n] = true;
            }
        });
    for (const flashtile_tensor* view : inputs)
        each_element(*view, [&](std::size_t offset) {
            for (std::size_t n = offset; n < offset + size_of(view->dtype); ++n) alone &= !written[n];
        });
    return alone;
}

}  // namespace flashtile::fuzz
