// sequence_lengths.h: the checks of cu_seqlens_q and cu_seqlens_k, max_seqlen_q and max_seqlen_k, and of what each
// sequence uses: seqused_q, seqused_k and first_k.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

// Packed batches: the batch size and the longest lengths.
void check_cumulative_lengths(CallUnderCheck& c);
// The same of queries alone, whose keys are a cache's.
void check_cumulative_queries(CallUnderCheck& c);

void check_used_lengths(CallUnderCheck& c);

// A list of `count` int32 on q's device; `meaning` says of what.
Lengths check_int32_list(const TensorArgument& list, std::int64_t count, const char* meaning, CallUnderCheck& c);

// The entries of these tensors. Where they lie in device memory, only if check_values is set, since reading them
// synchronises.
void check_length_values(CallUnderCheck& c);

}  // namespace flashtile::api
