// access.h: what a plan needs to know of the operands' memory: how wide loads may be, whether TMA can read the
// operands, and which of them are given. A plan depends on the Problem, on this and on the GPU, but on no address.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace flashtile::gpu {

struct Access {
    int vector_bytes = 16;        // of a load or store: all rows are aligned to it
    int append_bytes = 16;        // the same, of what is appended first
    bool tensor_maps = true;      // TMA can read q, k and v
    bool bias_map = true;         // TMA can read the bias
    bool even_queries = true;     // q's rows lie at equal steps, over all sequences
    bool values_in_keys = false;  // v is the first columns of k, in the same memory
    bool lse = true;              // forward writes LSE
    bool near_tensors = true;     // an element of what functions read is less than 2^31 bytes from the first
    bool seqused = false;
    bool dbias = false, dsinks = false, dtensors = false;
    std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1, bias_cols = 1;

    bool operator==(const Access&) const = default;
};

Access access_of(const Problem& problem, const Operands& operands);

// The access to contiguous tensors.
Access contiguous_access(const Problem& problem);

// The largest power of two, up to 16, of which an address or a stride in bytes is a multiple.
int alignment_of(std::uint64_t bytes);

}  // namespace flashtile::gpu
