// call.cpp: the names of call.h, and what each of them is in the structs of flashtile.h.
#include "xla/call.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <variant>

namespace flashtile::xla {
namespace {

template <typename Struct, typename Field>
struct Named {
    std::string_view name;
    Field Struct::*field;
};

template <typename Struct>
using Tensor = Named<Struct, const flashtile_tensor*>;

#define FLASHTILE_FIELD(Struct, name) \
    { #name, &Struct::name }

using Inputs = flashtile_inputs;
constexpr Tensor<Inputs> input_tensors[] = {
    FLASHTILE_FIELD(Inputs, q),           FLASHTILE_FIELD(Inputs, k),
    FLASHTILE_FIELD(Inputs, v),           FLASHTILE_FIELD(Inputs, alibi_slopes),
    FLASHTILE_FIELD(Inputs, bias),        FLASHTILE_FIELD(Inputs, mask),
    FLASHTILE_FIELD(Inputs, sinks),       FLASHTILE_FIELD(Inputs, cu_seqlens_q),
    FLASHTILE_FIELD(Inputs, seqused_k),   FLASHTILE_FIELD(Inputs, cu_seqlens_k),
    FLASHTILE_FIELD(Inputs, block_table), FLASHTILE_FIELD(Inputs, cache_batch_idx),
    FLASHTILE_FIELD(Inputs, first_k),     FLASHTILE_FIELD(Inputs, seqused_q),
    FLASHTILE_FIELD(Inputs, tree_mask),   FLASHTILE_FIELD(Inputs, positions),
    FLASHTILE_FIELD(Inputs, diagonals),   FLASHTILE_FIELD(Inputs, prefix_groups),
    FLASHTILE_FIELD(Inputs, origins_i),   FLASHTILE_FIELD(Inputs, prefix_lengths),
    FLASHTILE_FIELD(Inputs, origins_j)};

using Append = flashtile_append_tensors;
constexpr Tensor<Append> append_tensors[] = {FLASHTILE_FIELD(Append, k),
                                             FLASHTILE_FIELD(Append, v),
                                             FLASHTILE_FIELD(Append, slots),
                                             FLASHTILE_FIELD(Append, cu_seqlens_k_new),
                                             FLASHTILE_FIELD(Append, rotary_cos),
                                             FLASHTILE_FIELD(Append, rotary_sin),
                                             FLASHTILE_FIELD(Append, rotary_offsets),
                                             FLASHTILE_FIELD(Append, positions),
                                             FLASHTILE_FIELD(Append, positions_q)};

using Lists = flashtile_block_lists;
constexpr Tensor<Lists> list_tensors[] = {FLASHTILE_FIELD(Lists, counts), FLASHTILE_FIELD(Lists, indices),
                                          FLASHTILE_FIELD(Lists, full_counts), FLASHTILE_FIELD(Lists, full_indices)};

using Outputs = flashtile_forward_outputs;
constexpr Tensor<Outputs> results[] = {FLASHTILE_FIELD(Outputs, out), FLASHTILE_FIELD(Outputs, lse)};

using Gradients = flashtile_gradients;
constexpr Tensor<Gradients> backward_reads[] = {FLASHTILE_FIELD(Gradients, out), FLASHTILE_FIELD(Gradients, lse),
                                                FLASHTILE_FIELD(Gradients, dout), FLASHTILE_FIELD(Gradients, dlse)};
constexpr Tensor<Gradients> gradients[] = {FLASHTILE_FIELD(Gradients, dq), FLASHTILE_FIELD(Gradients, dk),
                                           FLASHTILE_FIELD(Gradients, dv), FLASHTILE_FIELD(Gradients, dbias),
                                           FLASHTILE_FIELD(Gradients, dsinks)};

using Options = flashtile_options;
struct Option {
    std::string_view name;
    std::variant<std::int32_t Options::*, std::int64_t Options::*, float Options::*, double Options::*> field;
};
constexpr Option option_fields[] = {FLASHTILE_FIELD(Options, causal),          FLASHTILE_FIELD(Options, alignment),
                                    FLASHTILE_FIELD(Options, scale),           FLASHTILE_FIELD(Options, softcap),
                                    FLASHTILE_FIELD(Options, window_left),     FLASHTILE_FIELD(Options, window_right),
                                    FLASHTILE_FIELD(Options, dropout),         FLASHTILE_FIELD(Options, deterministic),
                                    FLASHTILE_FIELD(Options, batch_invariant), FLASHTILE_FIELD(Options, exact_max),
                                    FLASHTILE_FIELD(Options, attention_chunk), FLASHTILE_FIELD(Options, num_splits),
                                    FLASHTILE_FIELD(Options, sm_limit),        FLASHTILE_FIELD(Options, diagonal),
                                    FLASHTILE_FIELD(Options, origin_b),        FLASHTILE_FIELD(Options, origin_h),
                                    FLASHTILE_FIELD(Options, origin_i),        FLASHTILE_FIELD(Options, origin_j)};
#undef FLASHTILE_FIELD

constexpr std::string_view append_prefix = "append.", list_prefix = "block_lists.", function_prefix = "tensors.",
                           zero_prefix = "zero.";
constexpr std::string_view of_64_bits[] = {"diagonals", "origins_i", "origins_j", "append.slots"};

[[noreturn]] void refuse(std::string_view name, std::string_view why) {
    throw std::invalid_argument(std::string(name) + " " + std::string(why));
}

template <typename Struct, std::size_t n>
bool put(Struct& to, const Tensor<Struct> (&table)[n], std::string_view name, const flashtile_tensor* tensor) {
    for (const Tensor<Struct>& entry : table)
        if (entry.name == name) {
            to.*entry.field = tensor;
            return true;
        }
    return false;
}

bool is_64_bits(std::string_view name) {
    for (const std::string_view wide : of_64_bits)
        if (wide == name) return true;
    return false;
}

template <typename Value>
void put_option(Options& options, std::string_view name, Value value) {
    for (const Option& option : option_fields) {
        if (option.name != name) continue;
        if (name == "scale") options.has_scale = 1;
        return std::visit(
            [&]<typename Field>(Field Options::*field) {
                if constexpr (std::is_integral_v<Field> != std::is_integral_v<Value>) {
                    refuse(name, "is a number of another kind than the library's");
                } else {
                    if constexpr (std::is_integral_v<Field>)
                        if (value < std::numeric_limits<Field>::min() || value > std::numeric_limits<Field>::max())
                            refuse(name, "is " + std::to_string(value) + ", allowed are numbers of its size");
                    options.*field = static_cast<Field>(value);
                }
            },
            option.field);
    }
    refuse(name, "is no option of this flashtile's: was the program exported by a newer one?");
}

}  // namespace

Call::Call(Pass pass, const Place& place) : pass_(pass), place_(place) {
    options_.stream = place.stream;
}

void Call::set(std::string_view name, std::int64_t value) {
    if (name == "max_seqlen_q")
        inputs_.max_seqlen_q = value;
    else if (name == "max_seqlen_k")
        inputs_.max_seqlen_k = value;
    else if (name == "append.rotary_begin")
        append_.rotary_begin = value;
    else if (name == "append.rotary_interleaved")
        append_.rotary_interleaved = value != 0;
    else if (name == "block_lists.block_q")
        lists_.block_q = value;
    else if (name == "block_lists.block_k")
        lists_.block_k = value;
    else
        put_option(options_, name, value);
}

void Call::set(std::string_view name, double value) {
    put_option(options_, name, value);
}

void Call::set(std::string_view name, std::string_view text) {
    if (name == "score_function")
        inputs_.score_function = (score_ = text).c_str();
    else if (name == "mask_function")
        inputs_.mask_function = (mask_ = text).c_str();
    else
        refuse(name, "is a text, allowed are score_function and mask_function");
}

const flashtile_tensor* Call::add(std::string_view name, const Buffer& buffer) {
    if (count_ == most_tensors) refuse(name, "is one tensor too many");
    std::size_t rank = buffer.shape.size();
    flashtile_tensor& tensor = tensors_[count_++];
    tensor.data = buffer.data;
    tensor.dtype = buffer.dtype;
    if (is_64_bits(name) && buffer.dtype == FLASHTILE_INT32) {
        if (rank == 0 || buffer.shape.back() != 2) refuse(name, "has no two words of 32 bits for an element");
        tensor.dtype = FLASHTILE_INT64;
        --rank;
    }
    if (rank > FLASHTILE_MAX_RANK) refuse(name, "has more dimensions than the library takes");
    tensor.device_type = place_.device;
    tensor.device_id = place_.index;
    tensor.rank = static_cast<std::int32_t>(rank);
    std::int64_t stride = 1;
    for (std::size_t axis = rank; axis-- > 0; stride *= buffer.shape[axis]) {
        tensor.shape[axis] = buffer.shape[axis];
        tensor.stride[axis] = stride;
    }
    return &tensor;
}

void Call::add_named(std::vector<flashtile_named_tensor>& list, std::string_view name, const Buffer& buffer) {
    if (texts_.empty()) texts_.reserve(2 * most_tensors);  // so that none moves
    if (texts_.size() == 2 * most_tensors) refuse(name, "is one tensor too many");
    texts_.emplace_back(name.substr(function_prefix.size()));
    list.push_back({texts_.back().c_str(), *add(name, buffer)});
}

void Call::read(std::string_view name, const Buffer& buffer) {
    if (name.starts_with(zero_prefix)) return;
    if (name.starts_with(function_prefix)) return add_named(named_, name, buffer);
    if (name == "seed" || name == "offset") {
        const bool seed = name == "seed";
        if (buffer.dtype != 0 || buffer.shape.size() != 1 || buffer.shape[0] != 2)
            refuse(name, "is not of two words of 32 bits");
        const auto* const words = static_cast<const std::uint64_t*>(buffer.data);
        if (place_.device == FLASHTILE_CUDA)
            (seed ? options_.seed_ptr : options_.offset_ptr) = words;
        else  // which need not lie at a multiple of 8
            std::memcpy(seed ? &options_.seed : &options_.offset, words, sizeof(std::uint64_t));
        return;
    }
    const flashtile_tensor* const tensor = add(name, buffer);
    if (put(inputs_, input_tensors, name, tensor)) return;
    if (pass_ == Pass::backward && put(gradients_, backward_reads, name, tensor)) return;
    if (name.starts_with(append_prefix) && put(append_, append_tensors, name.substr(append_prefix.size()), tensor)) {
        inputs_.append = &append_;
        return;
    }
    if (name.starts_with(list_prefix) && put(lists_, list_tensors, name.substr(list_prefix.size()), tensor)) {
        inputs_.block_lists = &lists_;
        return;
    }
    refuse(name, "is no tensor that this flashtile reads: was the program exported by a newer one?");
}

void Call::write(std::string_view name, const Buffer& buffer) {
    if (pass_ == Pass::backward && name.starts_with(function_prefix)) return add_named(dnamed_, name, buffer);
    if (name == "k" || name == "v") {
        const flashtile_tensor* const cache = name == "k" ? inputs_.k : inputs_.v;
        if (cache == nullptr || cache->data != buffer.data) refuse(name, "is a cache that lies elsewhere as a result");
        return;
    }
    const flashtile_tensor* const tensor = add(name, buffer);
    if (pass_ == Pass::forward ? put(outputs_, results, name, tensor) : put(gradients_, gradients, name, tensor))
        return;
    refuse(name, "is no result of this flashtile's: was the program exported by a newer one?");
}

void Call::finish() {
    inputs_.function_tensors = named_.data();
    inputs_.function_tensor_count = static_cast<std::int64_t>(named_.size());
    gradients_.dtensors = dnamed_.data();
    gradients_.dtensor_count = static_cast<std::int64_t>(dnamed_.size());
}

flashtile_status Call::workspace_size(std::size_t& bytes) {
    finish();
    return pass_ == Pass::forward ? flashtile_forward_workspace(&options_, &inputs_, &outputs_, &bytes)
                                  : flashtile_backward_workspace(&options_, &inputs_, &gradients_, &bytes);
}

void Call::use_workspace(void* data, std::size_t bytes) {
    options_.workspace = data;
    options_.workspace_size = bytes;
}

flashtile_status Call::run() {
    finish();
    return pass_ == Pass::forward ? flashtile_forward(&options_, &inputs_, &outputs_)
                                  : flashtile_backward(&options_, &inputs_, &gradients_);
}

}  // namespace flashtile::xla
