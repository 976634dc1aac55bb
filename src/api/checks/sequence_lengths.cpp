// sequence_lengths.cpp: see sequence_lengths.h.
#include "api/checks/sequence_lengths.h"

#include <cstddef>
#include <vector>

#include "api/checks/refuse.h"
#include "core/backend.h"

namespace flashtile::api {
namespace {

std::int64_t longest(std::int64_t given, const char* name) {
    if (given < 0) refuse(name, given, "the longest sequence's length (packed batches need it)");
    return given;
}

Lengths lengths_of(const TensorArgument& t) {
    return {t->data, t.dtype() == DType::int64};
}

// Lengths where the host can read them: the caller's own memory, or a copy of what lies on a device.
class ReadableLengths {
public:
    ReadableLengths(const Lengths& given, std::int64_t count, const Execution& execution) : lengths_(given) {
        if (execution.device_type == FLASHTILE_CPU) return;
        copy_.resize(static_cast<std::size_t>(count) * (given.wide ? 8 : 4));
        backend_for(execution.device_type).read(copy_.data(), given.data, copy_.size(), execution);
        lengths_.data = copy_.data();
    }
    ReadableLengths(const ReadableLengths&) = delete;
    ReadableLengths& operator=(const ReadableLengths&) = delete;

    std::int64_t operator[](std::int64_t n) const { return lengths_[n]; }

private:
    Lengths lengths_;
    std::vector<std::byte> copy_;
};

// What cu_seqlens_q or cu_seqlens_k has to agree with.
struct Bounds {
    const char* name;
    std::int64_t total;
    const char* longest_name;
    std::int64_t longest;
};

void check_cumulative(const ReadableLengths& cu, std::int64_t batch, const Bounds& of) {
    if (cu[0] != 0) refuse(text(of.name, "[0]"), cu[0], "0");
    for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t here = cu[b], next = cu[b + 1];
        if (next < here) refuse(text(of.name, "[", b + 1, "]"), next, text("no less than the entry before, ", here));
        if (next - here > of.longest)
            refuse(of.longest_name, of.longest, text("at least the length of sequence ", b, ", ", next - here));
    }
    if (cu[batch] > of.total) refuse(text(of.name, "[", batch, "]"), cu[batch], text("at most the total, ", of.total));
}

void check_used(std::int64_t used, std::int64_t b, std::int64_t seqlen) {
    if (used < 0 || used > seqlen) refuse(text("seqused_k[", b, "]"), used, text("0 to the sequence's ", seqlen));
}

}  // namespace

void check_cumulative_lengths(CallUnderCheck& c) {
    Problem& p = c.call.problem;
    const TensorArgument cu_q(c.inputs.cu_seqlens_q, "cu_seqlens_q"), cu_k(c.inputs.cu_seqlens_k, "cu_seqlens_k");
    for (const TensorArgument* t : {&cu_q, &cu_k}) {
        t->require();
        t->check_form();
        t->check_device({c.inputs.q, "q"});
        t->check_rank(1, "(batch + 1)");
        t->check_innermost();
        if (t->dtype() != DType::int32 && t->dtype() != DType::int64)
            refuse(text(t->name(), ".dtype"), name(t->dtype()), "int32 or int64");
        if (t->shape(0) < 1) refuse(text(t->name(), ".shape"), shape_text(**t), "batch + 1 entries");
    }
    p.batch = cu_q.shape(0) - 1;
    cu_k.check_shape({p.batch + 1}, "(batch + 1), that of cu_seqlens_q");
    p.seqlen_q = longest(c.inputs.max_seqlen_q, "max_seqlen_q");
    p.seqlen_k = longest(c.inputs.max_seqlen_k, "max_seqlen_k");
    c.call.operands.cu_seqlens_q = lengths_of(cu_q);
    c.call.operands.cu_seqlens_k = lengths_of(cu_k);
    c.memory.reads(cu_q), c.memory.reads(cu_k);
}

void check_used_keys(CallUnderCheck& c) {
    const TensorArgument used(c.inputs.seqused_k, "seqused_k");
    if (!used.present()) return;
    used.check_form();
    used.check_device({c.inputs.q, "q"});
    used.check_dtype(DType::int32, "");
    used.check_shape({c.call.problem.batch}, "(batch)");
    used.check_innermost();
    c.call.operands.seqused_k = lengths_of(used);
    c.memory.reads(used);
}

void check_length_values(CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    const Execution& execution = c.call.execution;
    const bool readable = execution.device_type == FLASHTILE_CPU || execution.check_values;
    if (!c.tensors_have_memory || !readable) return;
    if (p.packed) {
        const ReadableLengths cu_q(x.cu_seqlens_q, p.batch + 1, execution);
        const ReadableLengths cu_k(x.cu_seqlens_k, p.batch + 1, execution);
        check_cumulative(cu_q, p.batch, {"cu_seqlens_q", p.total_q, "max_seqlen_q", p.seqlen_q});
        check_cumulative(cu_k, p.batch, {"cu_seqlens_k", p.total_k, "max_seqlen_k", p.seqlen_k});
        if (!x.seqused_k) return;
        const ReadableLengths used(x.seqused_k, p.batch, execution);
        for (std::int64_t b = 0; b < p.batch; ++b) check_used(used[b], b, cu_k[b + 1] - cu_k[b]);
    } else if (x.seqused_k) {
        const ReadableLengths used(x.seqused_k, p.batch, execution);
        for (std::int64_t b = 0; b < p.batch; ++b) check_used(used[b], b, p.seqlen_k);
    }
}

}  // namespace flashtile::api
