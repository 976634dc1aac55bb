// sequence_shards.cpp: see sequence_shards.h.
#include "api/checks/sequence_shards.h"

#include "api/checks/options.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

// A list of one int64 for each sequence, in place of the option of that name and value. Null where it is not given.
const std::int64_t* check_list(const TensorArgument& list, const char* option, std::int64_t value,
                               const TensorArgument& like, CallUnderCheck& c) {
    if (!list.present()) return nullptr;
    list.check_form();
    list.check_device(like);
    list.check_dtype(DType::int64, "");
    list.check_shape({c.call.problem.batch}, "(batch)");
    list.check_innermost();
    if (value != 0) refuse(option, value, text("0 beside ", list.name(), ", one a sequence"));
    c.memory.reads(list);
    return static_cast<const std::int64_t*>(list->data);
}

void check_diagonals(const CallUnderCheck& c) {
    const ReadableLengths at({c.call.operands.diagonals, true}, c.call.problem.batch, c.call.execution);
    for (std::int64_t b = 0; at && b < c.call.problem.batch; ++b)
        if (at[b] < -FLASHTILE_MAX_DIAGONAL || at[b] > FLASHTILE_MAX_DIAGONAL)
            refuse(text("diagonals[", b, "]"), at[b], text(-FLASHTILE_MAX_DIAGONAL, " to ", FLASHTILE_MAX_DIAGONAL));
}

// What an origin adds up with.
struct Size {
    const char* name;
    std::int64_t size;
};

// Chunks of the whole problem start where those of a sequence do, if its origin is a multiple of `chunk`; 0: none.
void check_origins(const char* name, const std::int64_t* origins, const Size& of, std::int64_t chunk,
                   const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const ReadableLengths at({origins, true}, p.batch, c.call.execution);
    for (std::int64_t b = 0; at && b < p.batch; ++b) {
        const auto entry = [&] { return text(name, "[", b, "]"); };
        if (at[b] < 0 || at[b] > FLASHTILE_MAX_ORIGIN) refuse(entry(), at[b], text("0 to ", FLASHTILE_MAX_ORIGIN));
        if (chunk != 0 && at[b] % chunk != 0)
            refuse(entry(), at[b], text("a multiple of attention_chunk, which is ", chunk));
        if (p.dropout_threshold != 0 && at[b] > kMaxDropoutLength - of.size)
            refuse(entry(), at[b], text("at most 2^32 - ", of.name, " (", of.size, ") with dropout"));
    }
}

}  // namespace

void check_sequence_shards(const TensorArgument& like, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    Operands& x = c.call.operands;
    const TensorArgument diagonals(c.inputs.diagonals, "diagonals");
    x.diagonals = check_list(diagonals, "diagonal", p.diagonal, like, c);
    x.origins_i = check_list({c.inputs.origins_i, "origins_i"}, "origin_i", p.origin_i, like, c);
    x.origins_j = check_list({c.inputs.origins_j, "origins_j"}, "origin_j", p.origin_j, like, c);
    if (diagonals.present() && p.positions)
        refuse("diagonals", "given with positions", "NULL: positions say where queries are");
    p.diagonals = diagonals.present();
    p.origins_i = c.inputs.origins_i != nullptr;
    p.origins_j = c.inputs.origins_j != nullptr;
}

void check_sequence_shard_values(const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    const bool readable = c.call.execution.device_type == FLASHTILE_CPU || c.call.execution.check_values;
    if (!c.tensors_have_memory || !readable) return;
    check_diagonals(c);
    check_origins("origins_i", x.origins_i, {"seqlen_q", p.seqlen_q}, 0, c);
    check_origins("origins_j", x.origins_j, {"seqlen_k", p.seqlen_k}, c.options.attention_chunk, c);
}

}  // namespace flashtile::api
