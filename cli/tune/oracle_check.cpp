// oracle_check.cpp: see oracle_check.h.
#include "tune/oracle_check.h"

#include <algorithm>
#include <stdexcept>

#include "conformance/judge.h"

namespace flashtile::cli::tune {
namespace {

// A few heads, and rows that end within a tile of any size.
constexpr std::int64_t kKeyHeads = 2, kGroup = 2, kRows = 620;

PlanArguments small(PlanArguments problem) {
    ShapeOptions& shape = problem.shape;
    shape.batch = 1;
    const std::int64_t group = std::min(kGroup, shape.heads / shape.kv_heads);
    shape.kv_heads = std::min(kKeyHeads, shape.kv_heads);
    shape.heads = group * shape.kv_heads;
    shape.seqlen_q = std::min(kRows, shape.seqlen_q);
    shape.seqlen_k = std::min(kRows, shape.seqlen_k);
    return problem;
}

conformance::Case case_of(const PlanArguments& problem) {
    const options o = problem.attention.to_options();
    const ShapeOptions& s = problem.shape;
    conformance::Case c;
    c.name = "tune";
    c.type = parse_dtype(problem.attention.dtype);
    c.batch = s.batch;
    c.heads = s.heads;
    c.kv_heads = s.kv_heads;
    c.seqlen_q = s.seqlen_q;
    c.seqlen_k = s.seqlen_k;
    c.head_dim = s.head_dim;
    c.head_dim_v = s.head_dim_v;
    c.causal = o.causal;
    c.window = o.window;
    c.align_top_left = o.align_top_left;
    c.scale = o.scale;
    c.softcap = o.softcap;
    c.dropout = o.dropout;
    c.seed = o.seed;
    c.deterministic = problem.deterministic;
    c.guard = conformance::Guard::page_before;  // tensors as aligned as an allocation is
    return c;
}

}  // namespace

std::string wrong_against_oracle(const PlanArguments& problem, Pass pass, const std::string& tile) {
    const PlanArguments few = small(problem);
    const std::vector<NamedTile> tiles = tiles_of(few, pass).tiles;
    const auto found = std::ranges::find(tiles, tile, &NamedTile::tile);
    if (found == tiles.end()) throw std::runtime_error("the problem that is held against the oracle has no " + tile);
    choose(few, pass, *found);
    conformance::Target target = conformance::cuda_target();
    target.where = cuda(problem.device);
    const auto passes = pass == Pass::forward ? conformance::Passes::forward : conformance::Passes::both;
    const conformance::Verdict verdict = conformance::judge(case_of(few), target, passes);
    return verdict.ok() ? "" : "beside dense attention in fp64:\n" + verdict.to_string();
}

}  // namespace flashtile::cli::tune
