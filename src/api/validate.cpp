// validate.cpp: every rule about arguments, in the order in which a user would read them. Messages name the argument,
// its value and what is allowed.
#include "api/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "api/overlap.h"
#include "core/backend.h"
#include "core/error.h"

namespace flashtile::api {
namespace {

constexpr std::int64_t kMaxHeadDim = 512;
// Far below any score that matters, and far enough from fp32's end for s / softcap on every backend.
constexpr float kLeastSoftcap = 1e-30f;
// No memory holds more rows, and no product of sizes in a backend overflows below it.
constexpr double kMaxRows = 0x1p47;
constexpr std::size_t kMostWorkspace = std::size_t{1} << 47;  // no address space has more
// Philox's packing (shared/philox.h) has this much room.
constexpr std::int64_t kMaxDropoutLength = std::int64_t{1} << 32;
constexpr std::int64_t kMaxDropoutBatch = std::int64_t{1} << 20;
constexpr std::int64_t kMaxDropoutHeads = std::int64_t{1} << 12;

template <class T>
std::string text(const T& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

[[noreturn]] void fail(const std::string& argument, const std::string& value, const std::string& allowed) {
    throw Error(FLASHTILE_INVALID_ARGUMENT, argument + " is " + value + ", allowed is " + allowed);
}

std::string shape_text(const flashtile_tensor& t) {
    std::string shape = "(";
    for (int n = 0; n < t.rank; ++n) shape += (n != 0 ? ", " : "") + text(t.shape[n]);
    return shape + ")";
}

// Versioned structs: an older caller's is shorter, and what it lacks keeps its default. No version of a struct ends
// between two multiples of its alignment, and a size that does could cut a pointer in two.
template <class T>
T read(const T* given, const T& defaults, const std::string& name, bool required) {
    if (given == nullptr) {
        if (required) fail(name, "NULL", "a pointer to the struct");
        return defaults;
    }
    if (given->size < sizeof(std::size_t) || given->size > sizeof(T) || given->size % alignof(T) != 0)
        fail(name + ".size", text(given->size),
             "a multiple of " + text(alignof(T)) + " from " + text(sizeof(std::size_t)) + " to " + text(sizeof(T)) +
                 " (use the _INIT macro)");
    T copy = defaults;
    std::memcpy(static_cast<void*>(&copy), given, given->size);
    return copy;
}

// One tensor argument under check.
class Checked {
public:
    Checked(const flashtile_tensor* tensor, std::string name) : tensor_(tensor), name_(std::move(name)) {}

    bool present() const { return tensor_ != nullptr; }
    const flashtile_tensor& operator*() const { return *tensor_; }
    const flashtile_tensor* operator->() const { return tensor_; }
    const std::string& name() const { return name_; }

    void require() const {
        if (tensor_ == nullptr) fail(name_, "NULL", "a tensor");
    }

    // What holds of every tensor: a known dtype, a sane shape, an extent that fits 64 bits, data where there are
    // elements.
    void check_form() const {
        if (tensor_->rank < 0 || tensor_->rank > FLASHTILE_MAX_RANK)
            fail(name_ + ".rank", text(tensor_->rank), "0 to " + text(FLASHTILE_MAX_RANK));
        const std::int64_t size = size_of(dtype());
        if (size == 0) fail(name_ + ".dtype", text(tensor_->dtype), "one of flashtile_dtype");
        bool none = false;
        for (int n = 0; n < tensor_->rank; ++n) {
            if (tensor_->shape[n] < 0) fail(name_ + ".shape", shape_text(*tensor_), "no negative size");
            none |= tensor_->shape[n] == 0;
        }
        if (none) return;
        std::int64_t count = size, reach = size;
        for (int n = 0; n < tensor_->rank; ++n) {
            std::int64_t step = 0;
            if (__builtin_mul_overflow(count, tensor_->shape[n], &count) ||
                (tensor_->shape[n] > 1 &&
                 (__builtin_mul_overflow(stride(n), tensor_->shape[n] - 1, &step) ||
                  __builtin_mul_overflow(step, size, &step) || __builtin_add_overflow(reach, step, &reach))))
                fail(name_ + ".shape", shape_text(*tensor_), "one whose size and extent in bytes fit 63 bits");
            if (tensor_->shape[n] > 1 && stride(n) < 0)
                fail(name_ + ".stride", text(stride(n)) + " in dimension " + text(n), "no negative stride");
        }
        if (tensor_->data == nullptr) fail(name_ + ".data", "NULL", "a pointer (the tensor has elements)");
        if (reinterpret_cast<std::uintptr_t>(tensor_->data) % static_cast<std::uintptr_t>(size) != 0)
            fail(name_ + ".data", text(tensor_->data), "a multiple of its element's " + text(size) + " bytes");
    }

    void check_shape(std::initializer_list<std::int64_t> expected, const char* meaning) const {
        check_shape(std::span(expected.begin(), expected.size()), meaning);
    }
    void check_shape(std::span<const std::int64_t> expected, const char* meaning) const {
        if (std::ranges::equal(std::span(tensor_->shape, static_cast<std::size_t>(tensor_->rank)), expected)) return;
        std::string allowed = std::string(meaning) + " = (";
        for (std::size_t n = 0; n < expected.size(); ++n) allowed += (n != 0 ? ", " : "") + text(expected[n]);
        fail(name_ + ".shape", shape_text(*tensor_), allowed + ")");
    }

    void check_rank(int rank, const char* meaning) const {
        if (tensor_->rank != rank) fail(name_ + ".rank", text(tensor_->rank), text(rank) + ": " + meaning);
    }

    void check_dtype(DType expected, const char* why) const {
        if (dtype() != expected)
            fail(name_ + ".dtype", flashtile::name(dtype()), std::string(flashtile::name(expected)) + why);
    }

    void check_innermost() const {
        const int last = tensor_->rank - 1;
        if (last >= 0 && tensor_->shape[last] > 1 && tensor_->stride[last] != 1)
            fail(name_ + ".stride", text(tensor_->stride[last]) + " in the innermost dimension", "1 (contiguous)");
    }

    void check_device(const Checked& like) const {
        if (tensor_->device_type != like->device_type || tensor_->device_id != like->device_id)
            fail(name_ + "'s device", text(tensor_->device_type) + ":" + text(tensor_->device_id),
                 "that of " + like.name() + ", " + text(like->device_type) + ":" + text(like->device_id));
    }

    DType dtype() const { return static_cast<DType>(tensor_->dtype); }
    std::int64_t shape(int n) const { return tensor_->shape[n]; }
    // Never read of a dimension of size 1, or of a tensor without elements, whose strides may be nonsense.
    std::int64_t stride(int n) const { return tensor_->shape[n] > 1 && !empty() ? tensor_->stride[n] : 0; }

private:
    bool empty() const { return std::count(tensor_->shape, tensor_->shape + tensor_->rank, 0) != 0; }

    const flashtile_tensor* tensor_;
    std::string name_;
};

// (batch, rows, heads, d), or (rows, heads, d) when packed
Operand rows_operand(const Checked& t) {
    const int lead = t->rank - 3;
    return {t->data, t.dtype(), lead != 0 ? t.stride(0) : 0, t.stride(lead), t.stride(lead + 1), 1};
}

// lse and dlse: (batch, heads, rows), or (heads, rows) when packed
Operand lse_operand(const Checked& t) {
    const int lead = t->rank - 2;
    return {t->data, t.dtype(), lead != 0 ? t.stride(0) : 0, t.stride(lead + 1), t.stride(lead), 1};
}

// Right-aligned broadcasting to (batch, heads, rows, cols)
std::array<std::int64_t, 4> broadcast_shape(const Checked& t, const std::array<std::int64_t, 4>& full) {
    if (t->rank > 4) fail(t.name() + ".rank", text(t->rank), "at most 4");
    std::array<std::int64_t, 4> shape = {1, 1, 1, 1};
    auto* const last = shape.data() + 4 - t->rank;
    for (int n = 0; n < t->rank; ++n) last[n] = t.shape(n);
    for (std::size_t n = 0; n < 4; ++n)
        if (shape[n] != 1 && shape[n] != full[n])
            fail(t.name() + ".shape", shape_text(*t),
                 "one that broadcasts to (batch, heads, seqlen_q, seqlen_k) = (" + text(full[0]) + ", " +
                     text(full[1]) + ", " + text(full[2]) + ", " + text(full[3]) + ")");
    return shape;
}

Operand broadcast_operand(const Checked& t) {
    const auto stride = [&](int from_last) { return t->rank >= from_last ? t.stride(t->rank - from_last) : 0; };
    const std::int64_t col = t->rank >= 1 && t.shape(t->rank - 1) > 1 ? t->stride[t->rank - 1] : 0;
    if (col != 0 && col != 1)
        fail(t.name() + ".stride", text(col) + " in the innermost dimension", "1 (contiguous) or 0 (broadcast)");
    return {t->data, t.dtype(), stride(4), stride(2), stride(3), col};
}

bool is_float(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

class Validator {
public:
    Call call;

    Validator() {
        inputs_.reserve(kMostInputs);
        outputs_.reserve(kMostOutputs);
    }

    void options(const flashtile_options* given) {
        const flashtile_options defaults = FLASHTILE_OPTIONS_INIT;
        o_ = read(given, defaults, "options", false);
        Problem& p = call.problem;

        if (o_.causal < FLASHTILE_CAUSAL_NONE || o_.causal > FLASHTILE_CAUSAL_TOP_LEFT)
            fail("causal", text(o_.causal), "0 (none), 1 (bottom-right) or 2 (top-left)");
        if (o_.alignment < FLASHTILE_ALIGN_BOTTOM_RIGHT || o_.alignment > FLASHTILE_ALIGN_TOP_LEFT)
            fail("alignment", text(o_.alignment), "0 (bottom-right) or 1 (top-left)");
        if (o_.window_left < -1) fail("window_left", text(o_.window_left), "-1 (open) or more");
        if (o_.window_right < -1) fail("window_right", text(o_.window_right), "-1 (open) or more");
        p.window_left = o_.window_left;
        p.window_right = o_.causal != FLASHTILE_CAUSAL_NONE ? 0 : o_.window_right;
        p.top_left = o_.causal == FLASHTILE_CAUSAL_NONE ? o_.alignment == FLASHTILE_ALIGN_TOP_LEFT
                                                        : o_.causal == FLASHTILE_CAUSAL_TOP_LEFT;
        if (o_.has_scale != 0 && !std::isfinite(o_.scale)) fail("scale", text(o_.scale), "a finite number");
        if (!std::isfinite(o_.softcap) || (o_.softcap != 0 && o_.softcap < kLeastSoftcap))
            fail("softcap", text(o_.softcap), "0 (off) or a number from 1e-30");
        p.softcap = o_.softcap;

        if (!(o_.dropout >= 0.0 && o_.dropout < 1.0)) fail("dropout", text(o_.dropout), "a probability in [0, 1)");
        p.dropout_threshold = static_cast<std::uint32_t>(std::fmin(std::nearbyint(o_.dropout * 65536.0), 65535.0));
        p.deterministic = o_.deterministic != 0;
        p.batch_invariant = o_.batch_invariant != 0;
        p.exact_max = o_.exact_max != 0 || p.batch_invariant;
        call.operands.seed = o_.seed;
        call.operands.offset = o_.offset;
        call.operands.seed_ptr = o_.seed_ptr;
        call.operands.offset_ptr = o_.offset_ptr;

        if (o_.threads < 0 || o_.threads > 4096) fail("threads", text(o_.threads), "0 (the process's setting) to 4096");
        if (o_.isa < FLASHTILE_ISA_AUTO || o_.isa > FLASHTILE_ISA_AMX)
            fail("isa", text(o_.isa), "one of flashtile_isa");
        if (o_.executor != nullptr && (o_.executor->parallel_for == nullptr || o_.executor->concurrency < 1))
            fail("executor", "without a parallel_for or with concurrency " + text(o_.executor->concurrency),
                 "a parallel_for and a concurrency of at least 1");
        if (o_.workspace == nullptr && o_.workspace_size != 0)
            fail("workspace", "NULL with workspace_size " + text(o_.workspace_size), "a pointer, or size 0");
        if (reinterpret_cast<std::uintptr_t>(o_.workspace) % 64 != 0)
            fail("workspace", text(o_.workspace), "a multiple of 64 bytes");
        call.execution = {FLASHTILE_CPU,       0,         o_.threads,   static_cast<flashtile_isa>(o_.isa),
                          o_.executor,         o_.stream, o_.workspace, o_.workspace_size,
                          o_.check_values != 0};
    }

    // There may be no memory behind the tensors.
    void nothing_is_read() { reads_ = false; }

    void inputs(const flashtile_inputs* given) {
        const flashtile_inputs defaults = FLASHTILE_INPUTS_INIT;
        const flashtile_inputs in = read(given, defaults, "inputs", true);
        Problem& p = call.problem;
        Operands& x = call.operands;
        const Checked q(in.q, "q"), k(in.k, "k"), v(in.v, "v");
        p.packed = in.cu_seqlens_q != nullptr || in.cu_seqlens_k != nullptr;
        const int rank = p.packed ? 3 : 4;
        for (const Checked* t : {&q, &k, &v}) {
            t->require();
            t->check_form();
            t->check_rank(rank, p.packed ? "(total, heads, head_dim)" : "(batch, seqlen, heads, head_dim)");
            t->check_innermost();
            t->check_device(q);
        }
        p.dtype = q.dtype();
        if (p.dtype == DType::fp8_e4m3)
            throw Error(FLASHTILE_UNSUPPORTED, "q.dtype is fp8_e4m3, which is not supported yet");
        if (!is_float(p.dtype)) fail("q.dtype", flashtile::name(p.dtype), "fp32, fp16 or bf16");
        k.check_dtype(p.dtype, ", that of q");
        v.check_dtype(p.dtype, ", that of q");
        call.execution.device_type = q->device_type;
        call.execution.device_id = q->device_id;

        const int rows = rank - 3;
        p.heads = q.shape(rows + 1);
        p.kv_heads = k.shape(rows + 1);
        p.head_dim = q.shape(rows + 2);
        p.head_dim_v = v.shape(rows + 2);
        if (p.heads < 1) fail("q.shape", shape_text(*q), "at least one head");
        if (p.kv_heads < 1 || p.heads % p.kv_heads != 0)
            fail("q.shape", shape_text(*q), "heads a multiple of k's " + text(p.kv_heads));
        if (p.head_dim < 1 || p.head_dim > kMaxHeadDim)
            fail("q.shape", shape_text(*q), "a head_dim from 1 to " + text(kMaxHeadDim));
        if (p.head_dim_v < 1 || p.head_dim_v > kMaxHeadDim)
            fail("v.shape", shape_text(*v), "a head_dim from 1 to " + text(kMaxHeadDim));

        if (p.packed) {
            p.total_q = q.shape(0);
            p.total_k = k.shape(0);
            k.check_shape({p.total_k, p.kv_heads, p.head_dim}, "(total_k, kv_heads, q's head_dim)");
            v.check_shape({p.total_k, p.kv_heads, p.head_dim_v}, "(total_k, kv_heads, head_dim_v)");
            sequences(in);
        } else {
            p.batch = q.shape(0);
            p.seqlen_q = q.shape(1);
            p.seqlen_k = k.shape(1);
            k.check_shape({p.batch, p.seqlen_k, p.kv_heads, p.head_dim}, "(batch, seqlen_k, kv_heads, q's head_dim)");
            v.check_shape({p.batch, p.seqlen_k, p.kv_heads, p.head_dim_v}, "(batch, seqlen_k, kv_heads, head_dim_v)");
            const bool of_q = in.max_seqlen_q != -1;
            if (of_q || in.max_seqlen_k != -1)
                fail(of_q ? "max_seqlen_q" : "max_seqlen_k", text(of_q ? in.max_seqlen_q : in.max_seqlen_k),
                     "-1 (unset) without cu_seqlens");
        }
        check_rows();
        q_ = in.q;
        x.q = rows_operand(q);
        x.k = rows_operand(k);
        x.v = rows_operand(v);
        add_input(q), add_input(k), add_input(v);

        const Checked used(in.seqused_k, "seqused_k");
        if (used.present()) {
            used.check_form();
            used.check_device(q);
            used.check_dtype(DType::int32, "");
            used.check_shape({p.batch}, "(batch)");
            used.check_innermost();
            x.seqused_k = {used->data, false};
            if (values_count()) check_used(readable(x.seqused_k, p.batch));
            add_input(used);
        }

        // scale and the band, now that lengths are known
        p.scale = o_.has_scale != 0 ? o_.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
        const std::int64_t whole = p.seqlen_q + p.seqlen_k;  // no key lies further from the diagonal
        if (p.window_left >= whole) p.window_left = -1;
        if (p.window_right >= whole) p.window_right = -1;
        if (p.dropout_threshold != 0) dropout_limits(p.batch, p.heads, p.seqlen_q, p.seqlen_k);

        const Checked slopes(in.alibi_slopes, "alibi_slopes"), bias(in.bias, "bias"), mask(in.mask, "mask");
        if (slopes.present()) {
            slopes.check_form();
            slopes.check_device(q);
            slopes.check_dtype(DType::fp32, "");
            if (slopes->rank == 1)
                slopes.check_shape({p.heads}, "(heads)");
            else
                slopes.check_shape({p.batch, p.heads}, "(heads) or (batch, heads)");
            x.slopes = {slopes->data,
                        DType::fp32,
                        slopes->rank == 2 ? slopes.stride(0) : 0,
                        0,
                        slopes.stride(slopes->rank - 1),
                        0};
            p.alibi = true;
            add_input(slopes);
        }
        const std::array<std::int64_t, 4> full = {p.batch, p.heads, p.seqlen_q, p.seqlen_k};
        if (bias.present()) {
            bias.check_form();
            bias.check_device(q);
            if (bias.dtype() != p.dtype && bias.dtype() != DType::fp32)
                fail("bias.dtype", flashtile::name(bias.dtype()),
                     p.dtype == DType::fp32 ? "fp32" : std::string(flashtile::name(p.dtype)) + " or fp32");
            const auto shape = broadcast_shape(bias, full);
            x.bias = broadcast_operand(bias);
            x.bias_batch = shape[0], x.bias_heads = shape[1], x.bias_rows = shape[2], x.bias_cols = shape[3];
            p.bias = bias.dtype();
            bias_ = in.bias;
            add_input(bias);
        }
        if (mask.present()) {
            mask.check_form();
            mask.check_device(q);
            mask.check_dtype(DType::boolean, "");
            broadcast_shape(mask, full);
            x.mask = broadcast_operand(mask);
            p.mask = true;
            add_input(mask);
        }
        // An empty problem has no elements to point at; nothing below will look.
        if (x.bias.data == nullptr) p.bias = DType::unset;
        if (x.mask.data == nullptr) p.mask = false;
    }

    void outputs(const flashtile_forward_outputs* given) {
        const flashtile_forward_outputs defaults = FLASHTILE_FORWARD_OUTPUTS_INIT;
        const flashtile_forward_outputs out = read(given, defaults, "outputs", true);
        call.operands.out = rows_like({out.out, "out"}, out_shape());
        add_output({out.out, "out"});
        if (out.lse != nullptr) {
            call.operands.lse = lse_like({out.lse, "lse"});
            add_output({out.lse, "lse"});
        }
        check_overlap();
    }

    void gradients(const flashtile_gradients* given) {
        const flashtile_gradients defaults = FLASHTILE_GRADIENTS_INIT;
        const flashtile_gradients g = read(given, defaults, "gradients", true);
        Operands& x = call.operands;
        const Problem& p = call.problem;
        x.out = rows_like({g.out, "out"}, out_shape());
        x.dout = rows_like({g.dout, "dout"}, out_shape());
        x.lse = lse_like({g.lse, "lse"});
        add_input({g.out, "out"}), add_input({g.dout, "dout"}), add_input({g.lse, "lse"});
        if (g.dlse != nullptr) {
            x.dlse = lse_like({g.dlse, "dlse"});
            add_input({g.dlse, "dlse"});
        }
        x.dq = rows_like({g.dq, "dq"}, shape(p.seqlen_q, p.total_q, p.heads, p.head_dim));
        x.dk = rows_like({g.dk, "dk"}, shape(p.seqlen_k, p.total_k, p.kv_heads, p.head_dim));
        x.dv = rows_like({g.dv, "dv"}, shape(p.seqlen_k, p.total_k, p.kv_heads, p.head_dim_v));
        add_output({g.dq, "dq"}), add_output({g.dk, "dk"}), add_output({g.dv, "dv"});
        const Checked dbias(g.dbias, "dbias");
        if (dbias.present()) {
            if (bias_ == nullptr) fail("dbias", "given without bias", "NULL");
            dbias.check_form();
            dbias.check_device({q_, "q"});
            dbias.check_dtype(static_cast<DType>(bias_->dtype), ", that of bias");
            dbias.check_shape(std::span(bias_->shape, static_cast<std::size_t>(bias_->rank)), "bias's shape");
            dbias.check_innermost();
            x.dbias = broadcast_operand(dbias);
            x.dbias.stride_col = 1;
            add_output(dbias);
        }
        check_overlap();
    }

    void dropout_mask(const flashtile_tensor* given) {
        const Checked keep(given, "keep");
        keep.require();
        keep.check_form();
        keep.check_dtype(DType::boolean, "");
        keep.check_rank(4, "(batch, heads, seqlen_q, seqlen_k)");
        keep.check_innermost();
        Problem& p = call.problem;
        p.batch = keep.shape(0), p.heads = keep.shape(1), p.seqlen_q = keep.shape(2), p.seqlen_k = keep.shape(3);
        dropout_limits(p.batch, p.heads, p.seqlen_q, p.seqlen_k);
        p.kv_heads = p.heads;
        call.execution.device_type = keep->device_type;
        call.execution.device_id = keep->device_id;
        add_output(keep);
        check_overlap();
        call.operands.mask = broadcast_operand(keep);
    }

private:
    static constexpr std::size_t kMostInputs = 13, kMostOutputs = 4;

    bool on_cpu() const { return call.execution.device_type == FLASHTILE_CPU; }

    // Values in device memory are checked only where that is asked for: it synchronises.
    bool values_count() const { return reads_ && (on_cpu() || o_.check_values != 0); }

    // The lengths themselves, or a copy of them that the host can read.
    Lengths readable(const Lengths& lengths, std::int64_t count) {
        if (on_cpu()) return lengths;
        std::vector<std::byte>& copy = copies_.emplace_back(static_cast<std::size_t>(count) * (lengths.wide ? 8 : 4));
        backend_for(call.execution.device_type).read(copy.data(), lengths.data, copy.size(), call.execution);
        return {copy.data(), lengths.wide};
    }

    void check_used(const Lengths& used) const {
        const Problem& p = call.problem;
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t longest = p.packed ? cu_k_[b + 1] - cu_k_[b] : p.seqlen_k;
            if (used[b] < 0 || used[b] > longest)
                fail("seqused_k[" + text(b) + "]", text(used[b]), "0 to the sequence's " + text(longest));
        }
    }

    void sequences(const flashtile_inputs& in) {
        Problem& p = call.problem;
        const Checked cu_q(in.cu_seqlens_q, "cu_seqlens_q"), cu_k(in.cu_seqlens_k, "cu_seqlens_k");
        for (const Checked* t : {&cu_q, &cu_k}) {
            t->require();
            t->check_form();
            t->check_device({in.q, "q"});
            t->check_rank(1, "(batch + 1)");
            t->check_innermost();
            if (t->dtype() != DType::int32 && t->dtype() != DType::int64)
                fail(t->name() + ".dtype", flashtile::name(t->dtype()), "int32 or int64");
            if (t->shape(0) < 1) fail(t->name() + ".shape", shape_text(**t), "batch + 1 entries");
        }
        p.batch = cu_q.shape(0) - 1;
        cu_k.check_shape({p.batch + 1}, "(batch + 1), that of cu_seqlens_q");
        call.operands.cu_seqlens_q = {cu_q->data, cu_q.dtype() == DType::int64};
        call.operands.cu_seqlens_k = {cu_k->data, cu_k.dtype() == DType::int64};
        p.seqlen_q = longest(in.max_seqlen_q, "max_seqlen_q");
        p.seqlen_k = longest(in.max_seqlen_k, "max_seqlen_k");
        if (values_count()) {
            cu_k_ = readable(call.operands.cu_seqlens_k, p.batch + 1);
            check_lengths(readable(call.operands.cu_seqlens_q, p.batch + 1), cu_q.name(), p.total_q, p.seqlen_q,
                          "max_seqlen_q");
            check_lengths(cu_k_, cu_k.name(), p.total_k, p.seqlen_k, "max_seqlen_k");
        }
        add_input(cu_q), add_input(cu_k);
    }

    // Views without elements, broadcast ones, and max_seqlen can claim any size.
    void check_rows() const {
        const Problem& p = call.problem;
        const std::int64_t batch = std::max<std::int64_t>(p.batch, 1);
        const std::int64_t seqlen = std::max({p.seqlen_q, p.seqlen_k, std::int64_t{1}});
        if (static_cast<double>(batch) * static_cast<double>(p.heads) * static_cast<double>(seqlen) > kMaxRows)
            fail("batch x heads x the longer seqlen (each at least 1)",
                 text(batch) + " x " + text(p.heads) + " x " + text(seqlen), "at most 2^47");
    }

    static std::int64_t longest(std::int64_t given, const char* name) {
        if (given < 0) fail(name, text(given), "the longest sequence's length (packed batches need it)");
        return given;
    }

    static void check_lengths(const Lengths& cu, const std::string& name, std::int64_t total, std::int64_t longest,
                              const char* longest_name, std::int64_t batch) {
        if (cu[0] != 0) fail(name + "[0]", text(cu[0]), "0");
        for (std::int64_t b = 0; b < batch; ++b) {
            const std::int64_t here = cu[b], next = cu[b + 1];
            if (next < here)
                fail(name + "[" + text(b + 1) + "]", text(next), "no less than the entry before, " + text(here));
            if (next - here > longest)
                fail(longest_name, text(longest),
                     "at least the length of sequence " + text(b) + ", " + text(next - here));
        }
        if (cu[batch] > total)
            fail(name + "[" + text(batch) + "]", text(cu[batch]), "at most the total, " + text(total));
    }
    void check_lengths(const Lengths& cu, const std::string& name, std::int64_t total, std::int64_t longest,
                       const char* longest_name) const {
        check_lengths(cu, name, total, longest, longest_name, call.problem.batch);
    }

    static void dropout_limits(std::int64_t batch, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k) {
        if (batch > kMaxDropoutBatch) fail("batch", text(batch), "at most 2^20 with dropout");
        if (heads > kMaxDropoutHeads) fail("heads", text(heads), "at most 4096 with dropout");
        if (seqlen_q > kMaxDropoutLength) fail("seqlen_q", text(seqlen_q), "at most 2^32 with dropout");
        if (seqlen_k > kMaxDropoutLength) fail("seqlen_k", text(seqlen_k), "at most 2^32 with dropout");
    }

    // (batch, rows, heads, d), of which a packed batch lacks the first.
    using Rows = std::array<std::int64_t, 4>;
    Rows shape(std::int64_t rows, std::int64_t total, std::int64_t heads, std::int64_t d) const {
        const Problem& p = call.problem;
        return {p.batch, p.packed ? total : rows, heads, d};
    }
    Rows out_shape() const {
        const Problem& p = call.problem;
        return shape(p.seqlen_q, p.total_q, p.heads, p.head_dim_v);
    }

    Operand rows_like(const Checked& t, const Rows& shape) const {
        const std::span<const std::int64_t> expected = std::span(shape).subspan(call.problem.packed ? 1 : 0);
        t.require();
        t.check_form();
        t.check_device({q_, "q"});
        t.check_dtype(call.problem.dtype, ", that of q");
        t.check_shape(expected, call.problem.packed ? "(total, heads, head_dim)" : "(batch, seqlen, heads, head_dim)");
        t.check_innermost();
        return rows_operand(t);
    }

    Operand lse_like(const Checked& t) const {
        const Problem& p = call.problem;
        t.require();
        t.check_form();
        t.check_device({q_, "q"});
        t.check_dtype(DType::fp32, "");
        if (p.packed)
            t.check_shape({p.heads, p.total_q}, "(heads, total_q)");
        else
            t.check_shape({p.batch, p.heads, p.seqlen_q}, "(batch, heads, seqlen_q)");
        t.check_innermost();
        return lse_operand(t);
    }

    void add_input(const Checked& t) { inputs_.push_back(t); }
    void add_output(const Checked& t) { outputs_.push_back(t); }

    void check_overlap() const {
        for (std::size_t n = 0; n < outputs_.size(); ++n) {
            const Checked& out = outputs_[n];
            if (overlaps_itself(*out))
                fail(out.name() + ".stride", "such that elements share memory", "distinct elements");
            for (const Checked& in : inputs_)
                if (overlap(*out, *in)) fail(out.name(), "overlapping " + in.name(), "memory of its own");
            for (std::size_t other = 0; other < n; ++other)
                if (overlap(*out, *outputs_[other]))
                    fail(out.name(), "overlapping " + outputs_[other].name(), "memory of its own");
        }
        if (o_.workspace == nullptr) return;
        flashtile_tensor workspace{};
        workspace.data = o_.workspace;
        workspace.dtype = FLASHTILE_BOOL;
        workspace.rank = 1;
        workspace.shape[0] = static_cast<std::int64_t>(std::min(o_.workspace_size, kMostWorkspace));
        workspace.stride[0] = 1;
        for (const auto* operands : {&inputs_, &outputs_})
            for (const Checked& operand : *operands)
                if (overlap(workspace, *operand))
                    fail("workspace", "overlapping " + operand.name(), "memory of its own");
    }

    flashtile_options o_{};
    const flashtile_tensor* q_ = nullptr;
    const flashtile_tensor* bias_ = nullptr;
    std::vector<Checked> inputs_, outputs_;
    std::vector<std::vector<std::byte>> copies_;
    bool reads_ = true;
    Lengths cu_k_;  // cu_seqlens_k where the host can read it
};

}  // namespace

Call validate_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                      const flashtile_forward_outputs* outputs) {
    Validator validator;
    validator.options(options);
    validator.inputs(inputs);
    validator.outputs(outputs);
    return validator.call;
}

Call validate_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                       const flashtile_gradients* gradients) {
    Validator validator;
    validator.options(options);
    validator.inputs(inputs);
    validator.gradients(gradients);
    return validator.call;
}

Call validate_plan(const flashtile_options* options, const flashtile_inputs* inputs) {
    Validator validator;
    validator.options(options);
    validator.nothing_is_read();
    validator.inputs(inputs);
    if (validator.call.execution.device_type != FLASHTILE_CUDA)
        fail("q's device_type", text(validator.call.execution.device_type), text(FLASHTILE_CUDA) + " (CUDA)");
    return validator.call;
}

Call validate_dropout_mask(const flashtile_options* options, const flashtile_tensor* keep) {
    Validator validator;
    validator.options(options);
    validator.dropout_mask(keep);
    return validator.call;
}

}  // namespace flashtile::api
