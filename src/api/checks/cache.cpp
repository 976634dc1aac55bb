// cache.cpp: see cache.h.
#include "api/checks/cache.h"

#include <algorithm>
#include <vector>

#include "api/checks/refuse.h"
#include "api/checks/sequence_lengths.h"

namespace flashtile::api {
namespace {

void check_block_table(const TensorArgument& table, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    table.check_form();
    table.check_device({c.inputs.q, "q"});
    table.check_dtype(DType::int32, "");
    table.check_rank(2, "(batch, max_pages)");
    table.check_innermost();
    p.max_pages = table.shape(1);
    table.check_shape({p.batch, p.max_pages}, "(batch, max_pages)");
    if (p.page_size < 1) refuse("k.shape", shape_text(*c.inputs.k), "a page_size from 1");
    check_count("max_pages x page_size", {p.max_pages, p.page_size});
    c.call.operands.block_table = static_cast<const std::int32_t*>(table->data);
    c.call.operands.block_table_stride = table.stride(0);
    c.memory.reads(table);
}

void check_batch_idx(const TensorArgument& rows, CallUnderCheck& c) {
    if (!rows.present()) {
        if (c.call.problem.pages < c.call.problem.batch)
            refuse("k.shape", shape_text(*c.inputs.k),
                   text("at least ", c.call.problem.batch, " rows, one a sequence"));
        return;
    }
    rows.check_form();
    rows.check_device({c.inputs.q, "q"});
    rows.check_integer();
    rows.check_shape({c.call.problem.batch}, "(batch)");
    rows.check_innermost();
    c.call.operands.cache_batch_idx = {rows->data, rows.dtype() == DType::int64};
    c.memory.reads(rows);
}

// Where groups of sequences that share their first keys start.
Lengths check_prefix_groups(const TensorArgument& groups, CallUnderCheck& c) {
    groups.require();
    groups.check_form();
    groups.check_rank(1, "(groups + 1)");
    if (groups.shape(0) < 1) refuse("prefix_groups.shape", shape_text(*groups), "(groups + 1) entries");
    return check_int32_list(groups, groups.shape(0), "(groups + 1)", c);
}

void check_prefixes(const TensorArgument& groups, const TensorArgument& lengths, CallUnderCheck& c) {
    if (!groups.present()) {
        if (lengths.present()) refuse("prefix_lengths", "given without prefix_groups", "NULL");
        return;
    }
    if (c.inputs.block_table == nullptr) refuse("prefix_groups", "given without block_table", "NULL");
    Operands& x = c.call.operands;
    x.prefix_groups = check_prefix_groups(groups, c);
    c.call.problem.prefix_groups = groups.shape(0) - 1;
    lengths.require();
    x.prefix_lengths = check_int32_list(lengths, c.call.problem.prefix_groups, "(groups)", c);
}

void check_page(std::int64_t page, std::int64_t b, std::int64_t n, const Problem& p) {
    if (page < 0 || page >= p.pages)
        refuse(text("block_table[", b, ", ", n, "]"), page,
               text("0 to ", p.pages - 1, ", a page of the cache, since the sequence has keys there"));
}

// The first `keys` keys of a sequence are those that row `row` of the table names.
struct Prefix {
    std::int64_t row = 0, keys = 0;
};

// Of every sequence.
std::vector<Prefix> readable_prefixes(const CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    std::vector<Prefix> result(static_cast<std::size_t>(p.batch));
    const ReadableLengths groups(x.prefix_groups, p.prefix_groups + 1, c.call.execution),
        lengths(x.prefix_lengths, p.prefix_groups, c.call.execution);
    if (!groups) return result;
    check_ascending(groups, p.prefix_groups, p.batch, "prefix_groups");
    for (std::int64_t group = 0; group < p.prefix_groups; ++group) {
        if (lengths[group] < 0 || lengths[group] > p.seqlen_k)
            refuse(text("prefix_lengths[", group, "]"), lengths[group], text("0 to a sequence's ", p.seqlen_k));
        for (std::int64_t b = groups[group]; b < groups[group + 1]; ++b)
            result[static_cast<std::size_t>(b)] = {groups[group], lengths[group]};
    }
    return result;
}

}  // namespace

bool names_a_cache(const flashtile_inputs& inputs) {
    for (const void* of_a_cache :
         {inputs.block_table, inputs.cache_batch_idx, inputs.prefix_groups, inputs.prefix_lengths})
        if (of_a_cache != nullptr) return true;
    if (inputs.append != nullptr) return true;
    return inputs.cu_seqlens_q != nullptr && inputs.cu_seqlens_k == nullptr && inputs.k != nullptr &&
           inputs.k->rank == 4;
}

void check_cache_sizes(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, CallUnderCheck& c) {
    Problem& p = c.call.problem;
    const TensorArgument table(c.inputs.block_table, "block_table"), rows(c.inputs.cache_batch_idx, "cache_batch_idx");
    if (c.inputs.cu_seqlens_k != nullptr)
        refuse("cu_seqlens_k", "given beside a cache", "NULL (seqused_k says lengths)");
    if (table.present() && rows.present()) refuse("cache_batch_idx", "given with block_table", "one of them");
    if (p.packed) {
        p.total_q = q.shape(0);
        check_cumulative_queries(c);
    } else {
        p.batch = q.shape(0);
        p.seqlen_q = q.shape(1);
        if (c.inputs.max_seqlen_q != -1) refuse("max_seqlen_q", c.inputs.max_seqlen_q, "-1 (unset) without cu_seqlens");
    }
    p.pages = k.shape(0);
    const std::int64_t length = k.shape(1);
    k.check_shape({p.pages, length, p.kv_heads, p.head_dim}, kCacheShape);
    v.check_shape({p.pages, length, p.kv_heads, p.head_dim_v}, kCacheShape);
    check_count("num_pages x page_size x kv_heads", {p.pages, length, p.kv_heads});
    std::int64_t capacity = length;
    if (table.present()) {
        p.page_size = length;
        check_block_table(table, c);
        capacity = p.max_pages * p.page_size;
    } else {
        check_batch_idx(rows, c);
    }
    check_prefixes({c.inputs.prefix_groups, "prefix_groups"}, {c.inputs.prefix_lengths, "prefix_lengths"}, c);
    p.seqlen_k = c.inputs.max_seqlen_k == -1 ? capacity : c.inputs.max_seqlen_k;
    if (p.seqlen_k < 0 || p.seqlen_k > capacity)
        refuse("max_seqlen_k", p.seqlen_k,
               text("-1 (unset) or at most ", capacity, ", what a sequence has of the cache"));
}

void check_cache_values(const ReadableLengths& used_k, const NewKeys& new_k, CallUnderCheck& c) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    if (x.block_table != nullptr) {
        const std::int64_t entries =
            p.batch == 0 || p.max_pages == 0 ? 0 : (p.batch - 1) * x.block_table_stride + p.max_pages;
        const ReadableLengths table({x.block_table, false}, entries, c.call.execution);
        const std::vector<Prefix> prefixes = readable_prefixes(c);
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t keys = used_k ? used_k[b] + new_k.of(b) : p.seqlen_k;
            const Prefix& prefix = prefixes[static_cast<std::size_t>(b)];
            const auto check = [&](std::int64_t row, std::int64_t first, std::int64_t end) {
                for (std::int64_t n = first / p.page_size; n * p.page_size < end; ++n)
                    check_page(table[row * x.block_table_stride + n], row, n, p);
            };
            check(prefix.row, 0, std::min(keys, prefix.keys));
            check(b, prefix.keys, keys);
        }
    }
    if (const ReadableLengths rows(x.cache_batch_idx, p.batch, c.call.execution); rows)
        for (std::int64_t b = 0; b < p.batch; ++b)
            if (rows[b] < 0 || rows[b] >= p.pages)
                refuse(text("cache_batch_idx[", b, "]"), rows[b], text("0 to ", p.pages - 1, ", a row of the cache"));
}

}  // namespace flashtile::api
