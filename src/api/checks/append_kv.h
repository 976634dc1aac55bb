// append_kv.h: the checks of flashtile_append_kv, and of what a forward call appends. Those of values that lie in the
// tensors (lengths, pages, slots, positions) are in append_values.cpp.
#pragma once

#include "api/checks/inputs.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"

namespace flashtile::api {

struct AppendCall {
    AppendProblem problem;
    AppendOperands operands;
    Execution execution;
};

AppendCall validate_append(const flashtile_options* options, const flashtile_append_tensors* tensors);

// Of a forward call that appends first: its inputs have been checked, but for the values that lie in them.
void check_append(CallUnderCheck& c);

// Says of an error that it is one of what forward is to append.
template <class Check>
void naming_append(Check check) {
    try {
        check();
    } catch (const Error& error) {
        throw Error(error.status(), text("append: ", error.what()));
    }
}

// The host can read them.
void check_append_values(const AppendProblem& problem, const AppendOperands& operands, const Execution& execution);

// How many new keys each sequence gets; none where there is nothing to append.
class NewKeys {
public:
    NewKeys(const AppendProblem& p, const AppendOperands& x, const Execution& execution)
        : starts_(x.cu_seqlens_k_new, p.batch + 1, execution), each_(p.seqlen_k) {}

    std::int64_t of(std::int64_t b) const { return starts_ ? starts_[b + 1] - starts_[b] : each_; }

private:
    ReadableLengths starts_;
    std::int64_t each_;
};

}  // namespace flashtile::api
