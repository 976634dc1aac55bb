// memory.h: the memory of one drawn call: a place for each tensor, with guards between that the address sanitizer
// watches, and a judgement of what the call wrote there.
#pragma once

#include <flashtile/flashtile.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace flashtile::fuzz {

constexpr std::size_t place_size = 4096;  // bytes that a tensor may take

std::size_t size_of(std::int32_t dtype);  // 0: not a dtype

// Bytes from data to the end of the last element; 0 where there is no element or the form is wrong, so that no call may
// touch anything; nothing where the view reaches out of the memory, so that no call may run.
std::optional<std::size_t> extent(const flashtile_tensor& view);

std::byte* place(std::size_t number);  // 64-byte aligned

// Every byte of all places set to one value.
void fill_memory(std::byte value);

// Remembers all bytes, and lets the sanitizer report a touch of any that belongs to none of the tensors.
void guard_memory(std::span<const flashtile_tensor* const> tensors);

// Ends the guard. True where every byte is as it was but for elements of `outputs`.
bool only_changed(std::span<const flashtile_tensor* const> outputs);

// True where no byte belongs to an element of an output and to anything else.
bool outputs_lie_alone(std::span<const flashtile_tensor* const> outputs,
                       std::span<const flashtile_tensor* const> inputs);

}  // namespace flashtile::fuzz
