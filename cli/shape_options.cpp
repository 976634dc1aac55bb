// shape_options.cpp: see shape_options.h.
#include "shape_options.h"

#include "number_checks.h"

namespace flashtile::cli {

void ShapeOptions::add_to(CLI::App& app, const std::string& group) {
    app.add_option("--batch", batch, "Sequences")->check(at_least_0)->group(group);
    app.add_option("--heads", heads, "Query heads")->check(at_least_1)->group(group);
    app.add_option("--kv-heads", kv_heads, "Key heads (default: as query heads)")->check(at_least_1)->group(group);
    app.add_option("--seqlen-q", seqlen_q, "Queries")->check(at_least_0)->group(group);
    app.add_option("--seqlen-k", seqlen_k, "Keys (default: as queries)")->check(at_least_1)->group(group);
    app.add_option("--head-dim", head_dim, "Columns of q and k")->check(at_least_1)->group(group);
    app.add_option("--head-dim-v", head_dim_v, "Columns of v (default: as q)")->check(at_least_1)->group(group);
}

void ShapeOptions::complete() {
    if (kv_heads == 0) kv_heads = heads;
    if (seqlen_k == 0) seqlen_k = seqlen_q;
    if (head_dim_v == 0) head_dim_v = head_dim;
}

}  // namespace flashtile::cli
