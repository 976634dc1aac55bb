// access.h: what the operands allow beside what the Problem says: how wide loads may be, whether TMA can read them, and
// which of them are there. A plan follows from the Problem, from this and from the GPU, and from no address.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace flashtile::gpu {

struct Access {
    int vector_bytes = 16;    // of loads and stores: what all rows are aligned to
    bool tensor_maps = true;  // TMA can read q, k and v
    bool bias_map = true;     // and the bias
    bool lse = true;          // forward writes LSE
    bool seqused = false;
    bool dbias = false;
    std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1, bias_cols = 1;

    bool operator==(const Access&) const = default;
};

Access access_of(const Problem& problem, const Operands& operands);

// That of contiguous tensors.
Access contiguous_access(const Problem& problem);

// The bytes that an address or a stride is a multiple of, at most 16.
int alignment_of(std::uint64_t bytes);

}  // namespace flashtile::gpu
