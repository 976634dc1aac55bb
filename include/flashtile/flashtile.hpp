// flashtile.hpp: the C++ interface of flashtile, header-only over the C ABI of flashtile.h.
//
//     namespace ft = flashtile;
//     auto q = ft::view(q_ptr, ft::bf16, {batch, seqlen_q, heads, head_dim});
//     ft::forward({.causal = true}, q, k, v, out, lse);
//
// Views do not own memory. A call that cannot be done throws flashtile::error, with the status and a message that names
// the argument, its value and what is allowed, or flashtile::out_of_memory; nothing has been written then. Shapes:
// flashtile.h.
//
// FLASHTILE_OLD_NAMES, if defined before this is included, brings back names that were too short for a program with
// `using namespace flashtile`: int32, int64, name, available and why_not.
#pragma once

#include <flashtile/flashtile.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace flashtile {
inline namespace v0 {

// What a call came to, as flashtile_status.
enum class status : int {
    ok = FLASHTILE_OK,
    invalid_argument = FLASHTILE_INVALID_ARGUMENT,
    unsupported = FLASHTILE_UNSUPPORTED,
    out_of_memory = FLASHTILE_OUT_OF_MEMORY,
    device_error = FLASHTILE_DEVICE_ERROR,
    internal = FLASHTILE_INTERNAL,
};

// A call that cannot be done: its status, and in what() the argument, its value and what is allowed.
class error : public std::runtime_error {
public:
    error(flashtile_status code, const std::string& message)
        : std::runtime_error(message), code_(static_cast<status>(code)) {}
    status code() const noexcept { return code_; }

private:
    status code_;
};

// Memory ran out: a std::bad_alloc whose what() is the library's message.
class out_of_memory : public std::bad_alloc {
public:
    explicit out_of_memory(const std::string& message) : message_(std::make_shared<const std::string>(message)) {}
    const char* what() const noexcept override { return message_->c_str(); }

private:
    std::shared_ptr<const std::string> message_;  // shared, so that a copy of the exception allocates nothing
};

// The type of a tensor's elements, as flashtile_dtype.
enum class dtype : std::int32_t {
    fp32 = FLASHTILE_FP32,
    fp16 = FLASHTILE_FP16,
    bf16 = FLASHTILE_BF16,
    fp8_e4m3 = FLASHTILE_FP8_E4M3,
    boolean = FLASHTILE_BOOL,
    int32 = FLASHTILE_INT32,
    int64 = FLASHTILE_INT64,
};
inline constexpr dtype fp32 = dtype::fp32;
inline constexpr dtype fp16 = dtype::fp16;
inline constexpr dtype bf16 = dtype::bf16;
inline constexpr dtype fp8_e4m3 = dtype::fp8_e4m3;
inline constexpr dtype boolean = dtype::boolean;
#if defined(FLASHTILE_OLD_NAMES)
inline constexpr dtype int32 = dtype::int32;
inline constexpr dtype int64 = dtype::int64;
#endif

// Where a tensor's memory lies.
struct device {
    std::int32_t type = FLASHTILE_CPU;
    std::int32_t id = 0;
};
inline constexpr device cpu{FLASHTILE_CPU, 0};
// NVIDIA GPU `id`, counted as the driver counts them.
constexpr device cuda(std::int32_t id = 0) {
    return {FLASHTILE_CUDA, id};
}

// Instruction sets of CPUs, as flashtile_isa.
enum class isa : std::int32_t {
    automatic = FLASHTILE_ISA_AUTO,
    portable = FLASHTILE_ISA_PORTABLE,
    avx2 = FLASHTILE_ISA_AVX2,
    avx512 = FLASHTILE_ISA_AVX512,
    avx512_bf16 = FLASHTILE_ISA_AVX512_BF16,
    amx = FLASHTILE_ISA_AMX,
    neon_bf16 = FLASHTILE_ISA_NEON_BF16,
};

// A non-owning tensor. A default one is absent.
class tensor {
public:
    tensor() = default;
    explicit tensor(const flashtile_tensor& raw) : raw_(raw), present_(true) {}

    bool present() const noexcept { return present_; }
    const flashtile_tensor& raw() const noexcept { return raw_; }
    const flashtile_tensor* get() const noexcept { return present_ ? &raw_ : nullptr; }

private:
    flashtile_tensor raw_{};
    bool present_ = false;
};

namespace detail {

inline void check(flashtile_status code) {
    if (code == FLASHTILE_OUT_OF_MEMORY) throw out_of_memory(flashtile_last_error());
    if (code != FLASHTILE_OK) throw error(code, flashtile_last_error());
}

inline void require_rank(std::size_t rank) {
    if (rank > FLASHTILE_MAX_RANK)
        throw error(FLASHTILE_INVALID_ARGUMENT, "view: rank is " + std::to_string(rank) + ", allowed is at most " +
                                                    std::to_string(FLASHTILE_MAX_RANK));
}

}  // namespace detail

// A view with explicit strides, in elements.
inline tensor view(const void* data, dtype type, std::span<const std::int64_t> shape,
                   std::span<const std::int64_t> strides, device where = cpu) {
    detail::require_rank(shape.size());
    if (shape.size() != strides.size())
        throw error(FLASHTILE_INVALID_ARGUMENT, "view: shape and strides differ in length");
    flashtile_tensor raw{};
    raw.data = const_cast<void*>(data);
    raw.dtype = static_cast<std::int32_t>(type);
    raw.device_type = where.type;
    raw.device_id = where.id;
    raw.rank = static_cast<std::int32_t>(shape.size());
    for (std::size_t n = 0; n < shape.size(); ++n) {
        raw.shape[n] = shape[n];
        raw.stride[n] = strides[n];
    }
    return tensor(raw);
}

// A contiguous (row-major) view.
inline tensor view(const void* data, dtype type, std::span<const std::int64_t> shape, device where = cpu) {
    detail::require_rank(shape.size());
    std::int64_t strides[FLASHTILE_MAX_RANK] = {};
    std::uint64_t stride = 1;  // unsigned: a product past 64 bits wraps here and is refused by the call's own checks
    for (std::size_t n = shape.size(); n-- > 0;) {
        strides[n] = static_cast<std::int64_t>(stride);
        stride *= static_cast<std::uint64_t>(shape[n]);
    }
    return view(data, type, shape, std::span<const std::int64_t>(strides, shape.size()), where);
}

inline tensor view(const void* data, dtype type, std::initializer_list<std::int64_t> shape, device where = cpu) {
    return view(data, type, std::span<const std::int64_t>(shape.begin(), shape.size()), where);
}
inline tensor view(const void* data, dtype type, std::initializer_list<std::int64_t> shape,
                   std::initializer_list<std::int64_t> strides, device where = cpu) {
    return view(data, type, std::span<const std::int64_t>(shape.begin(), shape.size()),
                std::span<const std::int64_t>(strides.begin(), strides.size()), where);
}

// A view of a DLPack tensor (any type with DLTensor's fields, so that no dlpack.h is needed here).
template <class DLTensorLike>
requires requires(const DLTensorLike& t) {
    t.data;
    t.device.device_type;
    t.ndim;
    t.dtype.lanes;
    t.byte_offset;
}
tensor view(const DLTensorLike& dl_tensor) {
    flashtile_tensor raw{};
    detail::check(flashtile_from_dlpack(&dl_tensor, &raw));
    return tensor(raw);
}

// `.causal = true` is bottom-right, as in flash-attn; `.causal = top_left` is PyTorch's.
struct causal_mode {
    std::int32_t value = FLASHTILE_CAUSAL_NONE;
    constexpr causal_mode() = default;
    constexpr causal_mode(bool on) : value(on ? FLASHTILE_CAUSAL_BOTTOM_RIGHT : FLASHTILE_CAUSAL_NONE) {}
    constexpr explicit causal_mode(flashtile_causal mode) : value(mode) {}
};
inline constexpr causal_mode top_left{FLASHTILE_CAUSAL_TOP_LEFT};
inline constexpr causal_mode bottom_right{FLASHTILE_CAUSAL_BOTTOM_RIGHT};

// A query sees no key farther to its left or right than this; -1 is open (docs/semantics.md).
struct window_size {
    std::int64_t left = -1;
    std::int64_t right = -1;
};

// Where sequence 0, head 0, query 0 and key 0 of a shard lie in the whole problem.
struct shard_origin {
    std::int64_t b = 0;
    std::int64_t h = 0;
    std::int64_t i = 0;
    std::int64_t j = 0;
};

// Which blocks of the scores are seen: flashtile.h. Without `counts` all are.
struct block_lists {
    std::int64_t block_q = 128;
    std::int64_t block_k = 128;
    tensor counts = {};
    tensor indices = {};
    tensor full_counts = {};
    tensor full_indices = {};
};

// Every option, each off by default. Declaration order is the order that designated initialisers must keep.
struct options {
    causal_mode causal = {};
    window_size window = {};
    bool align_top_left = false;  // of window and ALiBi when causal is off
    std::optional<float> scale = {};
    float softcap = 0.0f;
    tensor alibi_slopes = {};
    tensor bias = {};
    tensor mask = {};
    double dropout = 0.0;
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    const std::uint64_t* seed_ptr = nullptr;
    const std::uint64_t* offset_ptr = nullptr;
    tensor cu_seqlens_q = {};
    tensor cu_seqlens_k = {};
    std::int64_t max_seqlen_q = -1;
    std::int64_t max_seqlen_k = -1;
    tensor seqused_k = {};
    bool deterministic = false;
    bool batch_invariant = false;
    bool exact_max = false;
    bool check_values = false;
    int threads = 0;
    flashtile::isa isa = flashtile::isa::automatic;
    const flashtile_executor* executor = nullptr;
    void* stream = nullptr;
    void* workspace = nullptr;
    std::size_t workspace_size = 0;
    // Keys and values in a cache, and what else serving asks of forward: flashtile.h.
    tensor block_table = {};
    tensor cache_batch_idx = {};
    tensor first_k = {};
    tensor seqused_q = {};
    tensor tree_mask = {};
    tensor sinks = {};
    std::int64_t attention_chunk = 0;
    int num_splits = 0;
    tensor positions = {};
    tensor prefix_groups = {};
    tensor prefix_lengths = {};
    int sm_limit = 0;
    // What makes a problem a shard of another one.
    std::int64_t diagonal = 0;
    shard_origin origin = {};
    tensor diagonals = {};  // int64 (batch), in place of the diagonal; likewise of the origin's i and j
    tensor origins_i = {};
    tensor origins_j = {};
    // The user's own: docs/functions.md. named() makes a tensor that they may name.
    const char* score_function = nullptr;
    const char* mask_function = nullptr;
    std::span<const flashtile_named_tensor> function_tensors = {};
    flashtile::block_lists block_lists = {};
    // Of e4m3 tensors: flashtile.h.
    tensor q_scale = {};
    tensor k_scale = {};
    tensor v_scale = {};
    int scale_block = 0;
};

// A tensor, of 1 to 4 dimensions, under the name that score_function and mask_function have for it.
inline flashtile_named_tensor named(const char* name, const tensor& value) {
    return {name, *value.get()};
}

// What backward reads and writes beside q, k, v; dlse, dbias, dsinks and dtensors may be absent.
struct backward_args {
    tensor out = {};
    tensor lse = {};
    tensor dout = {};
    tensor dlse = {};
    tensor dq = {};
    tensor dk = {};
    tensor dv = {};
    tensor dbias = {};
    tensor dsinks = {};
    std::span<const flashtile_named_tensor> dtensors = {};
};

// What append_kv reads and writes: flashtile.h says what may be absent.
struct append_args {
    tensor k = {};
    tensor v = {};
    tensor k_cache = {};
    tensor v_cache = {};
    tensor block_table = {};
    tensor slots = {};
    tensor cache_batch_idx = {};
    tensor cache_seqlens = {};
    tensor cu_seqlens_k_new = {};
    tensor rotary_cos = {};
    tensor rotary_sin = {};
    tensor rotary_offsets = {};
    tensor positions = {};
    tensor q = {};
    tensor q_out = {};
    tensor cu_seqlens_q = {};
    tensor positions_q = {};
    std::int64_t rotary_begin = 0;
    bool rotary_interleaved = false;
    tensor k_scale = {};
    tensor v_scale = {};
    int scale_block = 0;
};

// What quantize and dequantize read and write: flashtile.h says what may be absent.
struct quantize_args {
    tensor x = {};
    tensor quantized = {};
    tensor scale = {};
    tensor cu_seqlens = {};
    int scale_block = 0;
    bool scale_given = false;
    tensor rotary_cos = {};
    tensor rotary_sin = {};
    tensor rotary_offsets = {};
    tensor positions = {};
    std::int64_t rotary_begin = 0;
    bool rotary_interleaved = false;
    std::optional<std::uint64_t> hadamard = {};  // the seed of M
};

namespace detail {

inline flashtile_options c_options(const options& o) {
    flashtile_options c = FLASHTILE_OPTIONS_INIT;
    c.causal = o.causal.value;
    c.alignment = o.align_top_left ? FLASHTILE_ALIGN_TOP_LEFT : FLASHTILE_ALIGN_BOTTOM_RIGHT;
    c.has_scale = o.scale.has_value();
    c.scale = o.scale.value_or(0.0f);
    c.softcap = o.softcap;
    c.window_left = o.window.left;
    c.window_right = o.window.right;
    c.dropout = o.dropout;
    c.seed = o.seed;
    c.offset = o.offset;
    c.seed_ptr = o.seed_ptr;
    c.offset_ptr = o.offset_ptr;
    c.deterministic = o.deterministic;
    c.batch_invariant = o.batch_invariant;
    c.exact_max = o.exact_max;
    c.check_values = o.check_values;
    c.threads = o.threads;
    c.isa = static_cast<std::int32_t>(o.isa);
    c.executor = o.executor;
    c.stream = o.stream;
    c.workspace = o.workspace;
    c.workspace_size = o.workspace_size;
    c.num_splits = o.num_splits;
    c.attention_chunk = o.attention_chunk;
    c.sm_limit = o.sm_limit;
    c.diagonal = o.diagonal;
    c.origin_b = o.origin.b;
    c.origin_h = o.origin.h;
    c.origin_i = o.origin.i;
    c.origin_j = o.origin.j;
    return c;
}

// It points into what it is made of, which must outlive it.
struct c_inputs : flashtile_inputs {
    c_inputs(const options& o, const tensor& queries, const tensor& keys, const tensor& values);
    c_inputs(const c_inputs&) = delete;
    c_inputs& operator=(const c_inputs&) = delete;

private:
    flashtile_block_lists lists_ = FLASHTILE_BLOCK_LISTS_INIT;
};

inline c_inputs::c_inputs(const options& o, const tensor& queries, const tensor& keys, const tensor& values)
    : flashtile_inputs FLASHTILE_INPUTS_INIT {
    flashtile_inputs& c = *this;
    c.q = queries.get();
    c.k = keys.get();
    c.v = values.get();
    c.alibi_slopes = o.alibi_slopes.get();
    c.bias = o.bias.get();
    c.mask = o.mask.get();
    c.cu_seqlens_q = o.cu_seqlens_q.get();
    c.cu_seqlens_k = o.cu_seqlens_k.get();
    c.seqused_k = o.seqused_k.get();
    c.max_seqlen_q = o.max_seqlen_q;
    c.max_seqlen_k = o.max_seqlen_k;
    c.block_table = o.block_table.get();
    c.cache_batch_idx = o.cache_batch_idx.get();
    c.first_k = o.first_k.get();
    c.seqused_q = o.seqused_q.get();
    c.tree_mask = o.tree_mask.get();
    c.sinks = o.sinks.get();
    c.positions = o.positions.get();
    c.prefix_groups = o.prefix_groups.get();
    c.prefix_lengths = o.prefix_lengths.get();
    c.diagonals = o.diagonals.get();
    c.origins_i = o.origins_i.get();
    c.origins_j = o.origins_j.get();
    c.score_function = o.score_function;
    c.mask_function = o.mask_function;
    c.function_tensors = o.function_tensors.data();
    c.function_tensor_count = static_cast<std::int64_t>(o.function_tensors.size());
    c.q_scale = o.q_scale.get();
    c.k_scale = o.k_scale.get();
    c.v_scale = o.v_scale.get();
    c.scale_block = o.scale_block;
    const flashtile::block_lists& lists = o.block_lists;
    if (!lists.counts.present() && !lists.indices.present() && !lists.full_counts.present() &&
        !lists.full_indices.present())
        return;
    lists_.block_q = lists.block_q;
    lists_.block_k = lists.block_k;
    lists_.counts = lists.counts.get();
    lists_.indices = lists.indices.get();
    lists_.full_counts = lists.full_counts.get();
    lists_.full_indices = lists.full_indices.get();
    c.block_lists = &lists_;
}

// Likewise into `a`.
inline flashtile_append_tensors c_append(const append_args& a) {
    flashtile_append_tensors c = FLASHTILE_APPEND_TENSORS_INIT;
    c.k = a.k.get();
    c.v = a.v.get();
    c.k_cache = a.k_cache.get();
    c.v_cache = a.v_cache.get();
    c.block_table = a.block_table.get();
    c.slots = a.slots.get();
    c.cache_batch_idx = a.cache_batch_idx.get();
    c.cache_seqlens = a.cache_seqlens.get();
    c.cu_seqlens_k_new = a.cu_seqlens_k_new.get();
    c.rotary_cos = a.rotary_cos.get();
    c.rotary_sin = a.rotary_sin.get();
    c.rotary_offsets = a.rotary_offsets.get();
    c.positions = a.positions.get();
    c.q = a.q.get();
    c.q_out = a.q_out.get();
    c.cu_seqlens_q = a.cu_seqlens_q.get();
    c.positions_q = a.positions_q.get();
    c.rotary_begin = a.rotary_begin;
    c.rotary_interleaved = a.rotary_interleaved;
    c.k_scale = a.k_scale.get();
    c.v_scale = a.v_scale.get();
    c.scale_block = a.scale_block;
    return c;
}

// Likewise.
inline flashtile_quantize_tensors c_quantize(const quantize_args& a) {
    flashtile_quantize_tensors c = FLASHTILE_QUANTIZE_TENSORS_INIT;
    c.x = a.x.get();
    c.quantized = a.quantized.get();
    c.scale = a.scale.get();
    c.cu_seqlens = a.cu_seqlens.get();
    c.scale_block = a.scale_block;
    c.scale_given = a.scale_given;
    c.rotary_cos = a.rotary_cos.get();
    c.rotary_sin = a.rotary_sin.get();
    c.rotary_offsets = a.rotary_offsets.get();
    c.positions = a.positions.get();
    c.rotary_begin = a.rotary_begin;
    c.rotary_interleaved = a.rotary_interleaved;
    c.has_hadamard = a.hadamard.has_value();
    c.hadamard_seed = a.hadamard.value_or(0);
    return c;
}

inline flashtile_forward_outputs c_outputs(const tensor& out, const tensor& lse) {
    flashtile_forward_outputs c = FLASHTILE_FORWARD_OUTPUTS_INIT;
    c.out = out.get();
    c.lse = lse.get();
    return c;
}

inline flashtile_gradients c_gradients(const backward_args& a) {
    flashtile_gradients c = FLASHTILE_GRADIENTS_INIT;
    c.out = a.out.get();
    c.lse = a.lse.get();
    c.dout = a.dout.get();
    c.dlse = a.dlse.get();
    c.dq = a.dq.get();
    c.dk = a.dk.get();
    c.dv = a.dv.get();
    c.dbias = a.dbias.get();
    c.dsinks = a.dsinks.get();
    c.dtensors = a.dtensors.data();
    c.dtensor_count = static_cast<std::int64_t>(a.dtensors.size());
    return c;
}

}  // namespace detail

// Attention: out, and lse where a tensor is given for it. flashtile.h has the shapes and what each option means.
inline void forward(const options& o, const tensor& q, const tensor& k, const tensor& v, const tensor& out,
                    const tensor& lse = {}) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const auto outputs = detail::c_outputs(out, lse);
    detail::check(flashtile_forward(&c_opts, &inputs, &outputs));
}

// forward on a cache, k and v, to which new keys and values are appended first: flashtile.h, flashtile_inputs.append.
inline void append_forward(const options& o, const append_args& a, const tensor& q, const tensor& k, const tensor& v,
                           const tensor& out, const tensor& lse = {}) {
    const auto c_opts = detail::c_options(o);
    const auto append = detail::c_append(a);
    auto inputs = detail::c_inputs(o, q, k, v);
    inputs.append = &append;
    const auto outputs = detail::c_outputs(out, lse);
    detail::check(flashtile_forward(&c_opts, &inputs, &outputs));
}

// dq, dk, dv and what else the arguments ask for, from dout (Algorithm 2). Options and inputs must be the forward's.
inline void backward(const options& o, const tensor& q, const tensor& k, const tensor& v, const backward_args& args) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const auto gradients = detail::c_gradients(args);
    detail::check(flashtile_backward(&c_opts, &inputs, &gradients));
}

inline void backward(const options& o, const tensor& q, const tensor& k, const tensor& v, const tensor& out,
                     const tensor& lse, const tensor& dout, const tensor& dq, const tensor& dk, const tensor& dv) {
    backward(o, q, k, v, backward_args{.out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv});
}

// Bytes of options::workspace with which forward allocates nothing more.
inline std::size_t forward_workspace(const options& o, const tensor& q, const tensor& k, const tensor& v,
                                     const tensor& out, const tensor& lse = {}) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const auto outputs = detail::c_outputs(out, lse);
    std::size_t bytes = 0;
    detail::check(flashtile_forward_workspace(&c_opts, &inputs, &outputs, &bytes));
    return bytes;
}

// Bytes of options::workspace with which backward allocates nothing more.
inline std::size_t backward_workspace(const options& o, const tensor& q, const tensor& k, const tensor& v,
                                      const backward_args& args) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const auto gradients = detail::c_gradients(args);
    std::size_t bytes = 0;
    detail::check(flashtile_backward_workspace(&c_opts, &inputs, &gradients, &bytes));
    return bytes;
}

// The dropout mask of (o.dropout, o.seed, o.offset): boolean (batch, heads, seqlen_q, seqlen_k), true where kept.
inline void dropout_mask(const options& o, const tensor& keep) {
    const auto c_opts = detail::c_options(o);
    detail::check(flashtile_dropout_mask_of_shards(&c_opts, o.origins_i.get(), o.origins_j.get(), keep.get()));
}

// Merges partial results, which attended to different keys, into the result of attending to all of them: flashtile.h.
// lse may be absent.
inline void merge(const options& o, const tensor& outs, const tensor& lses, const tensor& out, const tensor& lse = {}) {
    const auto c_opts = detail::c_options(o);
    flashtile_merge_tensors c = FLASHTILE_MERGE_TENSORS_INIT;
    c.outs = outs.get();
    c.lses = lses.get();
    c.out = out.get();
    c.lse = lse.get();
    detail::check(flashtile_merge(&c_opts, &c));
}

// Writes new keys and values to a cache, dense or paged, and rotates them and q: flashtile.h.
inline void append_kv(const options& o, const append_args& a) {
    const auto c_opts = detail::c_options(o);
    const auto c = detail::c_append(a);
    detail::check(flashtile_append_kv(&c_opts, &c));
}

// quantized = x / scale, and scale unless it is given. Of the options only those count that say how to run.
inline void quantize(const options& o, const quantize_args& a) {
    const flashtile_options c_opts = detail::c_options(o);
    const flashtile_quantize_tensors c = detail::c_quantize(a);
    detail::check(flashtile_quantize(&c_opts, &c));
}

// x = quantized * scale.
inline void dequantize(const options& o, const quantize_args& a) {
    const flashtile_options c_opts = detail::c_options(o);
    const flashtile_quantize_tensors c = detail::c_quantize(a);
    detail::check(flashtile_dequantize(&c_opts, &c));
}

// Of the library that is loaded: "0.1.0".
inline const char* version() {
    return flashtile_version();
}
// What this thread's last successful call ran on, e.g. "cpu avx512_bf16 forward, 2 threads".
inline const char* last_run() {
    return flashtile_last_run();
}
// Whether this CPU and this build can run the instruction set.
inline bool isa_available(isa which) {
    return flashtile_isa_available(static_cast<flashtile_isa>(which)) != 0;
}
// Why not, or "" where they can.
inline const char* isa_why_not(isa which) {
    return flashtile_isa_why_not(static_cast<flashtile_isa>(which));
}
// "avx512_bf16", as FLASHTILE_ISA takes it.
inline const char* isa_name(isa which) {
    return flashtile_isa_name(static_cast<flashtile_isa>(which));
}
#if defined(FLASHTILE_OLD_NAMES)
inline bool available(isa which) {
    return isa_available(which);
}
inline const char* why_not(isa which) {
    return isa_why_not(which);
}
inline const char* name(isa which) {
    return isa_name(which);
}
#endif
// Threads that a call on the CPU uses unless it says otherwise, to FLASHTILE_MAX_THREADS; 0: as FLASHTILE_THREADS says,
// or all.
inline void set_threads(int threads) {
    detail::check(flashtile_set_threads(threads));
}
// What set_threads has set, or the default.
inline int get_threads() {
    return flashtile_get_threads();
}

// Whether a problem can run here, and on what or why not. Converts to true where it can.
struct runnable {
    std::string on;       // as last_run() would say; "" where it cannot
    std::string why_not;  // the message of the exception that the run would throw; "" where it can

    explicit operator bool() const noexcept { return why_not.empty(); }
};

namespace detail {

inline runnable can_run(const options& o, const tensor& q, const tensor& k, const tensor& v, bool backward) {
    const auto c_opts = c_options(o);
    const auto inputs = c_inputs(o, q, k, v);
    const char* on = nullptr;
    const flashtile_status code = flashtile_can_run(&c_opts, &inputs, backward ? 1 : 0, &on);
    if (code == FLASHTILE_OUT_OF_MEMORY) check(code);
    if (code != FLASHTILE_OK) return {"", flashtile_last_error()};
    return {on, ""};
}

}  // namespace detail

// On any device. They run nothing and read no tensor's memory: flashtile.h.
inline runnable can_run_forward(const options& o, const tensor& q, const tensor& k, const tensor& v) {
    return detail::can_run(o, q, k, v, false);
}
// The same for backward.
inline runnable can_run_backward(const options& o, const tensor& q, const tensor& k, const tensor& v) {
    return detail::can_run(o, q, k, v, true);
}

// What this process has of CUDA, as JSON.
inline std::string cuda_info() {
    return flashtile_cuda_info();
}

// How a problem runs on q's device, and why so, as JSON: flashtile.h. Without a device name: the device that is here.
inline std::string plan_report(const options& o, const tensor& q, const tensor& k, const tensor& v,
                               const std::optional<std::string>& device_name = {}, bool registers = false) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const char* json = nullptr;
    detail::check(flashtile_plan_report(&c_opts, &inputs, device_name ? device_name->c_str() : nullptr,
                                        registers ? 1 : 0, &json));
    return json;
}

// Tiles that were measured: flashtile.h.
inline void use_choice(const std::string& choice, bool keep) {
    detail::check(flashtile_use_choice(choice.c_str(), keep ? 1 : 0));
}
// From now on this process uses the library's own tiles; kept: later processes too.
inline void forget_choices(bool kept) {
    detail::check(flashtile_forget_choices(kept ? 1 : 0));
}

// Kernels compiled ahead of time: flashtile.h.
inline void load_bundle(const std::string& path) {
    detail::check(flashtile_load_bundle(path.c_str()));
}
// Compiles and loads what the first calls of the problem would wait for, in parallel: forward, with lse or without, and
// backward where asked for, with the gradients of bias and sinks where these are given, unless dbias_and_dsinks is
// false. Reads no tensor's memory. progress(done, total) is called from any thread, one at a time.
inline void prepare(const options& o, const tensor& q, const tensor& k, const tensor& v, bool lse = true,
                    bool backward = true, const std::function<void(std::size_t, std::size_t)>& progress = {},
                    bool dbias_and_dsinks = true) {
    const auto c_opts = detail::c_options(o);
    const auto inputs = detail::c_inputs(o, q, k, v);
    const std::int32_t gradients = dbias_and_dsinks ? 1 : 2;
    const flashtile_prepare_item item = {sizeof item, &c_opts, &inputs, 1, backward ? gradients : 0, lse ? 1 : 0};
    const auto call = [](void* context, std::size_t done, std::size_t total) {
        (*static_cast<const std::function<void(std::size_t, std::size_t)>*>(context))(done, total);
    };
    detail::check(flashtile_prepare(&item, 1, progress ? +call : nullptr,
                                    const_cast<std::function<void(std::size_t, std::size_t)>*>(&progress)));
}
// Compiles the items' kernels, which needs NVRTC and no GPU, and writes them to `path`. progress(done, total) is called
// from any thread, one at a time.
inline void compile_bundle(const std::string& path, std::span<const flashtile_bundle_item> items,
                           const std::function<void(std::size_t done, std::size_t total)>& progress = {}) {
    const auto call = [](void* context, std::size_t done, std::size_t total) {
        (*static_cast<const std::function<void(std::size_t, std::size_t)>*>(context))(done, total);
    };
    detail::check(flashtile_compile_bundle(path.c_str(), items.data(), items.size(), progress ? +call : nullptr,
                                           const_cast<void*>(static_cast<const void*>(&progress))));
}

}  // namespace v0
}  // namespace flashtile
