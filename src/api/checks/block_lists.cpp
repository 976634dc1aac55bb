// block_lists.cpp: see block_lists.h.
#include "api/checks/block_lists.h"

#include <optional>
#include <vector>

#include "api/checks/read_struct.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"
#include "shared/block_kinds.h"

namespace flashtile::api {
namespace {

// One of the two pairs of tensors, under the names that messages give them.
struct ListArguments {
    TensorArgument counts, indices;
};

void check_block(const char* name, std::int64_t block) {
    if (block < kLeastListedBlock || block % kLeastListedBlock != 0)
        refuse(name, block, text("a multiple of ", kLeastListedBlock));
}

void check_form(const TensorArgument& t, int rank, const char* meaning, const CallUnderCheck& c) {
    t.require();
    t.check_form();
    t.check_device({c.inputs.q, "q"});
    t.check_dtype(DType::int32, "");
    t.check_rank(rank, meaning);
}

// Any strides. Lists may be shared by all sequences and by all heads.
BlockList check_list(const ListArguments& of, CallUnderCheck& c) {
    constexpr const char* kCounts = "(batch or 1, heads or 1, blocks of queries)";
    constexpr const char* kIndices = "(batch or 1, heads or 1, blocks of queries, any)";
    Problem& p = c.call.problem;
    const auto one_or = [](const TensorArgument& t, int n, std::int64_t size) { return t.shape(n) == 1 ? 1 : size; };
    check_form(of.counts, 3, kCounts, c);
    check_form(of.indices, 4, kIndices, c);
    of.counts.check_shape({one_or(of.counts, 0, p.batch), one_or(of.counts, 1, p.heads), p.query_blocks()}, kCounts);
    of.indices.check_shape(
        {one_or(of.indices, 0, p.batch), one_or(of.indices, 1, p.heads), p.query_blocks(), of.indices.shape(3)},
        kIndices);
    for (const TensorArgument* t : {&of.counts, &of.indices}) {
        if (t->shape(0) != 1) p.list_batch = p.batch;
        if (t->shape(1) != 1) p.list_heads = p.heads;
        c.memory.reads(*t);
    }
    BlockList list;
    list.counts = static_cast<const std::int32_t*>(of.counts->data);
    list.indices = static_cast<const std::int32_t*>(of.indices->data);
    list.room = of.indices.shape(3);
    for (int n = 0; n < 3; ++n) list.count_stride[n] = of.counts.stride(n);
    for (int n = 0; n < 4; ++n) list.index_stride[n] = of.indices.stride(n);
    return list;
}

// What a list names, where the host can read it.
class ReadableList {
public:
    ReadableList(const BlockList& list, const ListArguments& of, const Execution& execution)
        : list_(list),
          names_{of.counts.name(), of.indices.name()},
          counts_({list.counts, false}, extent(of.counts), execution),
          indices_({list.indices, false}, extent(of.indices), execution) {}

    // Marks in `seen` what (b, h, row) names.
    void check_row(std::int64_t b, std::int64_t h, std::int64_t row, std::vector<bool>& seen) const {
        const std::int64_t count = counts_[list_.count_at(b, h, row)];
        if (count < 0 || count > list_.room)
            refuse(text(names_[0], "[", b, ", ", h, ", ", row, "]"), count,
                   text("0 to ", names_[1], "' ", list_.room, " entries"));
        for (std::int64_t n = 0; n < count; ++n) {
            const std::int64_t block = indices_[list_.index_at(b, h, row, n)];
            const auto place = [&] { return text(names_[1], "[", b, ", ", h, ", ", row, ", ", n, "]"); };
            const auto blocks = static_cast<std::int64_t>(seen.size());
            if (block < 0 || block >= blocks) refuse(place(), block, text("a block of keys, from 0 to ", blocks - 1));
            if (seen[static_cast<std::size_t>(block)]) refuse(place(), block, "a block that no entry before names");
            seen[static_cast<std::size_t>(block)] = true;
        }
    }

private:
    // Elements from the first to the last in memory.
    static std::int64_t extent(const TensorArgument& t) {
        std::int64_t last = 0;
        for (int n = 0; n < t->rank; ++n) {
            if (t.shape(n) == 0) return 0;
            last += (t.shape(n) - 1) * t.stride(n);
        }
        return last + 1;
    }

    const BlockList& list_;
    const char* names_[2];
    ReadableLengths counts_, indices_;
};

void check_values(const CallUnderCheck& c, const ListArguments& partial, const ListArguments& full) {
    const Problem& p = c.call.problem;
    const Operands& x = c.call.operands;
    const ReadableList some(x.partial_blocks, partial, c.call.execution);
    std::optional<ReadableList> all;
    if (full.counts.present()) all.emplace(x.full_blocks, full, c.call.execution);
    std::vector<bool> seen;
    for (std::int64_t b = 0; b < p.list_batch; ++b)
        for (std::int64_t h = 0; h < p.list_heads; ++h)
            for (std::int64_t row = 0; row < p.query_blocks(); ++row) {
                seen.assign(static_cast<std::size_t>(p.key_blocks()), false);
                some.check_row(b, h, row, seen);
                if (all) all->check_row(b, h, row, seen);
            }
}

}  // namespace

void check_block_lists(CallUnderCheck& c) {
    if (c.inputs.block_lists == nullptr) return;
    const flashtile_block_lists defaults = FLASHTILE_BLOCK_LISTS_INIT;
    const flashtile_block_lists given = read_struct(c.inputs.block_lists, defaults, "block_lists");
    const ListArguments partial{{given.counts, "block_lists.counts"}, {given.indices, "block_lists.indices"}},
        full{{given.full_counts, "block_lists.full_counts"}, {given.full_indices, "block_lists.full_indices"}};
    check_block("block_lists.block_q", given.block_q);
    check_block("block_lists.block_k", given.block_k);
    Problem& p = c.call.problem;
    p.block_q = given.block_q;
    p.block_k = given.block_k;
    c.call.operands.partial_blocks = check_list(partial, c);
    if (full.counts.present() || full.indices.present()) c.call.operands.full_blocks = check_list(full, c);
    check_count("the number of blocks that block_lists speaks of",
                {p.list_batch, p.list_heads, p.query_blocks(), p.key_blocks()});
    const Execution& execution = c.call.execution;
    if (c.tensors_have_memory && (execution.device_type == FLASHTILE_CPU || execution.check_values))
        check_values(c, partial, full);
}

}  // namespace flashtile::api
