// options.cpp: see options.h.
#include "api/checks/options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "api/checks/read_struct.h"
#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

constexpr std::uintptr_t kWorkspaceAlignment = 64;
constexpr std::int64_t kMaxDropoutBatch = std::int64_t{1} << 20;
constexpr std::int64_t kMaxDropoutHeads = std::int64_t{1} << 12;

void check_band(const flashtile_options& o, Problem& p) {
    if (o.causal < FLASHTILE_CAUSAL_NONE || o.causal > FLASHTILE_CAUSAL_TOP_LEFT)
        refuse("causal", o.causal, "0 (none), 1 (bottom-right) or 2 (top-left)");
    if (o.alignment < FLASHTILE_ALIGN_BOTTOM_RIGHT || o.alignment > FLASHTILE_ALIGN_TOP_LEFT)
        refuse("alignment", o.alignment, "0 (bottom-right) or 1 (top-left)");
    if (o.window_left < -1) refuse("window_left", o.window_left, "-1 (open) or more");
    if (o.window_right < -1) refuse("window_right", o.window_right, "-1 (open) or more");
    if (o.attention_chunk < 0) refuse("attention_chunk", o.attention_chunk, "0 (off) or the length of a chunk");
    const bool causal = o.causal != FLASHTILE_CAUSAL_NONE;
    p.window_left = o.window_left;
    p.window_right = causal ? 0 : o.window_right;
    p.attention_chunk = o.attention_chunk;
    p.top_left = causal ? o.causal == FLASHTILE_CAUSAL_TOP_LEFT : o.alignment == FLASHTILE_ALIGN_TOP_LEFT;
}

void check_shard(const flashtile_options& o, Problem& p) {
    if (o.diagonal < -FLASHTILE_MAX_DIAGONAL || o.diagonal > FLASHTILE_MAX_DIAGONAL)
        refuse("diagonal", o.diagonal, text(-FLASHTILE_MAX_DIAGONAL, " to ", FLASHTILE_MAX_DIAGONAL));
    for (const auto& [name, origin] : {std::pair("origin_b", o.origin_b), std::pair("origin_h", o.origin_h),
                                       std::pair("origin_i", o.origin_i), std::pair("origin_j", o.origin_j)})
        if (origin < 0 || origin > FLASHTILE_MAX_ORIGIN) refuse(name, origin, text("0 to ", FLASHTILE_MAX_ORIGIN));
    // Chunks of the whole problem then start where those of the shard do.
    if (o.attention_chunk != 0 && o.origin_j % o.attention_chunk != 0)
        refuse("origin_j", o.origin_j, text("a multiple of attention_chunk, which is ", o.attention_chunk));
    p.diagonal = o.diagonal;
    p.origin_b = o.origin_b;
    p.origin_h = o.origin_h;
    p.origin_i = o.origin_i;
    p.origin_j = o.origin_j;
}

void check_scores(const flashtile_options& o, Problem& p) {
    if (o.has_scale != 0 && !std::isfinite(o.scale)) refuse("scale", o.scale, "a finite number");
    if (!std::isfinite(o.softcap) || (o.softcap != 0 && o.softcap < FLASHTILE_MIN_SOFTCAP))
        refuse("softcap", o.softcap, text("0 (off) or a number from ", FLASHTILE_MIN_SOFTCAP));
    p.softcap = o.softcap;
}

void check_dropout(const flashtile_options& o, Problem& p) {
    if (!(o.dropout >= 0.0 && o.dropout < 1.0)) refuse("dropout", o.dropout, "a probability in [0, 1)");
    p.dropout_threshold = static_cast<std::uint32_t>(std::fmin(std::nearbyint(o.dropout * 65536.0), 65535.0));
}

void check_splits(const flashtile_options& o, Problem& p) {
    if (o.num_splits < 0 || o.num_splits > FLASHTILE_MAX_SPLITS)
        refuse("num_splits", o.num_splits, text("0 (the library's rule) to ", FLASHTILE_MAX_SPLITS));
    if (o.num_splits != 0 && o.batch_invariant != 0)
        refuse("num_splits", o.num_splits, "0 with batch_invariant, whose rule knows no batch");
    p.num_splits = o.num_splits;
}

void check_multiprocessors(const flashtile_options& o, Problem& p) {
    if (o.sm_limit < 0) refuse("sm_limit", o.sm_limit, "0 (all) or a number of multiprocessors");
    p.sm_limit = o.sm_limit;
}

void check_workspace(const flashtile_options& o) {
    if (o.workspace == nullptr && o.workspace_size != 0)
        refuse("workspace", text("NULL with workspace_size ", o.workspace_size), "a pointer, or size 0");
    if (reinterpret_cast<std::uintptr_t>(o.workspace) % kWorkspaceAlignment != 0)
        refuse("workspace", o.workspace, text("a multiple of ", kWorkspaceAlignment, " bytes"));
}

}  // namespace

flashtile_options read_options(const flashtile_options* given) {
    const flashtile_options defaults = FLASHTILE_OPTIONS_INIT;
    return given == nullptr ? defaults : read_struct(*given, defaults, "options");
}

Problem check_problem_options(const flashtile_options& o) {
    Problem p;
    check_band(o, p);
    check_shard(o, p);
    check_scores(o, p);
    check_dropout(o, p);
    check_splits(o, p);
    check_multiprocessors(o, p);
    p.deterministic = o.deterministic != 0;
    p.batch_invariant = o.batch_invariant != 0;
    p.exact_max = o.exact_max != 0 || p.batch_invariant;
    return p;
}

void settle_scale_and_window(const flashtile_options& o, Problem& p) {
    p.scale = o.has_scale != 0 ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
    // No key lies further from the diagonal, nor positions, of 31 bits, from each other. Kernels add to what is left.
    constexpr std::int64_t kLongest = std::int64_t{1} << 60;
    const std::int64_t diagonal = p.diagonals ? FLASHTILE_MAX_DIAGONAL : std::abs(p.diagonal);
    const std::int64_t whole = std::min(p.seqlen_q, kLongest) + std::min(p.seqlen_k, kLongest) + diagonal +
                               (p.positions ? std::int64_t{1} << 31 : 0);
    if (p.window_left >= whole) p.window_left = -1;
    if (p.window_right >= whole) p.window_right = -1;
    p.attention_chunk = std::min(p.attention_chunk, whole);
}

Execution check_execution(const flashtile_options& o) {
    check_threads(o.threads, "the process's setting");
    if (o.isa < FLASHTILE_ISA_AUTO || o.isa > FLASHTILE_ISA_NEON_BF16) refuse("isa", o.isa, "one of flashtile_isa");
    if (o.executor != nullptr) check_executor(*o.executor);
    check_workspace(o);
    Execution execution;
    execution.threads = o.threads;
    execution.isa = static_cast<flashtile_isa>(o.isa);
    execution.executor = o.executor;
    execution.stream = o.stream;
    execution.workspace = o.workspace;
    execution.workspace_size = o.workspace_size;
    execution.check_values = o.check_values != 0;
    return execution;
}

void check_threads(std::int32_t threads, const char* zero) {
    if (threads < 0 || threads > FLASHTILE_MAX_THREADS)
        refuse("threads", threads, text("0 (", zero, ") to ", FLASHTILE_MAX_THREADS));
}

void check_executor(const flashtile_executor& executor) {
    if (executor.parallel_for == nullptr) refuse("executor's parallel_for", "NULL", "a function");
    if (executor.concurrency < 1) refuse("executor's concurrency", executor.concurrency, "at least 1");
}

void check_dropout_sizes(const Problem& p) {
    const auto check = [](const char* name, std::int64_t size, const char* origin_name, std::int64_t origin,
                          std::int64_t most, const char* as_text) {
        if (size > most) refuse(name, size, text("at most ", as_text, " with dropout"));
        if (origin > most - size)
            refuse(origin_name, origin, text("at most ", as_text, " - ", name, " (", size, ") with dropout"));
    };
    check("batch", p.batch, "origin_b", p.origin_b, kMaxDropoutBatch, "2^20");
    check("heads", p.heads, "origin_h", p.origin_h, kMaxDropoutHeads, "4096");
    check("seqlen_q", p.seqlen_q, "origin_i", p.origin_i, kMaxDropoutLength, "2^32");
    check("seqlen_k", p.seqlen_k, "origin_j", p.origin_j, kMaxDropoutLength, "2^32");
}

}  // namespace flashtile::api
