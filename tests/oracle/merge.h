// merge.h: partial results merged in fp64, straight from the definition: lse = log sum_i exp(lse_i), out = sum_i
// exp(lse_i - lse) out_i, over the parts whose lse is not -infinity.
#pragma once

#include <cstdint>
#include <vector>

namespace flashtile::oracle {

struct Parts {
    std::int64_t parts = 0, batch = 1, seqlen = 0, heads = 1, head_dim = 1;
    std::vector<double> outs;  // (parts, batch, seqlen, heads, head_dim)
    std::vector<double> lses;  // (parts, batch, heads, seqlen)
};

struct Merged {
    std::vector<double> out;    // (batch, seqlen, heads, head_dim)
    std::vector<double> lse;    // (batch, heads, seqlen)
    std::vector<double> terms;  // of out: sum_i exp(lse_i - lse) |out_i|, by which a relative roundoff is measured
};

Merged merge(const Parts& parts);

}  // namespace flashtile::oracle
