// tree_mask.h: which of a sequence's last seqlen_q keys each of its queries sees, as a tree of drafts has it: a query
// sees its ancestors. The keys before these are the text so far and are not hidden here.
#pragma once

#include "cuda/kernels/parts/common/place.h"
#include "cuda/kernels/parts/common/sequence.h"

namespace flashtile {

template <KernelConfig config, int MT, int NT>
__device__ __forceinline__ void apply_tree_mask(Fragments<MT, NT>& s, const KernelParams& p, const Sequence& seq,
                                                const Place& place) {
    const int text = seq.seqlen_k - seq.seqlen_q;  // keys before the tree
    if (place.j0 + NT * 8 <= text) return;
    const unsigned char* const head =
        static_cast<const unsigned char*>(p.tree_mask.data) + seq.b * p.tree_mask.stride_batch;
    each_score<MT, NT>([&](int m, int n, int e) {
        const int row = place.i0 + Place::row(m, e), i = query_of<config>(row);
        const int j = place.j0 + Place::column(n, e);
        if (j < text || j >= seq.seqlen_k) return;
        const Index h = seq.h + row % config.group_rows;
        const Index at = h * p.tree_mask.stride_head + i * p.tree_mask.stride_row + (j - text) * p.tree_mask.stride_col;
        // rows past the last query see nothing of it, so that keys hidden from all queries count as hidden
        if (i >= seq.seqlen_q || head[at] == 0) s.c[m][n][e] = -infinity();
    });
}

}  // namespace flashtile
