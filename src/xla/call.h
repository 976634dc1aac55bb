// call.h: a call of flashtile_forward or flashtile_backward, filled by names. XLA gives a handler its buffers in order
// and its attributes by name; two attributes say which buffer is what (handlers.cpp).
#pragma once

#include <flashtile/flashtile.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashtile::xla {

enum class Pass { forward, backward };

// Where buffers lie, and on CUDA the stream.
struct Place {
    flashtile_device device;
    std::int32_t index;
    void* stream;
};

// Memory of XLA's, whose rows are dense. dtype is a flashtile_dtype, or 0 for 32-bit words without a sign.
struct Buffer {
    void* data;
    std::int32_t dtype;
    std::span<const std::int64_t> shape;
};

// Functions that take a name throw std::invalid_argument where the call has nothing of that name, or not with that
// value. Buffers and the names themselves must outlive the call; texts are copied.
class Call {
public:
    Call(Pass pass, const Place& place);
    Call(const Call&) = delete;  // the structs point to each other
    Call& operator=(const Call&) = delete;

    // A field of flashtile_options, or a number of flashtile_inputs, flashtile_append_tensors ("append." before it) or
    // flashtile_block_lists ("block_lists.").
    void set(std::string_view name, std::int64_t value);
    void set(std::string_view name, double value);
    // "score_function" or "mask_function".
    void set(std::string_view name, std::string_view text);

    // A tensor of the inputs, or with a prefix of another struct: "append.k", "block_lists.counts"; "tensors.NAME" is
    // one that functions name. Backward reads out, lse, dout and dlse too. "seed" and "offset" are two words each, low
    // word first; so are the elements of tensors that the library has as INT64, in a last dimension of their own,
    // unless they come as such. "zero.NAME" is a result's memory, which XLA has cleared.
    void read(std::string_view name, const Buffer& buffer);
    // A result; "tensors.NAME" is the gradient of that tensor. "k" and "v" are caches that are written where they lie.
    void write(std::string_view name, const Buffer& buffer);

    // What the library answers.
    flashtile_status workspace_size(std::size_t& bytes);
    flashtile_status run();

    void use_workspace(void* data, std::size_t bytes);

private:
    static constexpr std::size_t most_tensors = 64;

    const flashtile_tensor* add(std::string_view name, const Buffer& buffer);
    void add_named(std::vector<flashtile_named_tensor>& list, std::string_view name, const Buffer& buffer);
    void finish();

    Pass pass_;
    Place place_;
    flashtile_options options_ = FLASHTILE_OPTIONS_INIT;
    flashtile_inputs inputs_ = FLASHTILE_INPUTS_INIT;
    flashtile_append_tensors append_ = FLASHTILE_APPEND_TENSORS_INIT;
    flashtile_block_lists lists_ = FLASHTILE_BLOCK_LISTS_INIT;
    flashtile_forward_outputs outputs_ = FLASHTILE_FORWARD_OUTPUTS_INIT;
    flashtile_gradients gradients_ = FLASHTILE_GRADIENTS_INIT;
    std::size_t count_ = 0;
    std::array<flashtile_tensor, most_tensors> tensors_;
    std::vector<flashtile_named_tensor> named_, dnamed_;
    std::string score_, mask_;
    std::vector<std::string> texts_;  // the names in named_ and dnamed_
};

}  // namespace flashtile::xla
