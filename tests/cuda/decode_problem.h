// decode_problem.h: one query a sequence on many keys, for tests of plans.
#pragma once

#include "core/problem.h"

namespace flashtile::gpu {

inline Problem one_query(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t keys) {
    Problem p;
    p.dtype = DType::bf16;
    p.batch = batch;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.seqlen_q = 1;
    p.seqlen_k = keys;
    p.head_dim = p.head_dim_v = 128;
    p.scale = 0.125f;
    return p;
}

}  // namespace flashtile::gpu
