// append_values.cpp: the values that an append finds in its tensors, where the host can read them: every new row has a
// place in the cache and a position in the table. Else the kernels skip such rows and clamp such positions.
#include <algorithm>

#include "api/checks/append_kv.h"
#include "api/checks/readable_lengths.h"
#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

// How many rows each sequence has.
class Rows {
public:
    Rows(const Lengths& cu_seqlens, const char* name, std::int64_t batch, std::int64_t rows, std::int64_t seqlen,
         const Execution& execution)
        : starts_(cu_seqlens, batch + 1, execution), seqlen_(seqlen) {
        if (starts_) check_ascending(starts_, batch, rows, name);
    }

    std::int64_t count(std::int64_t b) const { return starts_ ? starts_[b + 1] - starts_[b] : seqlen_; }

private:
    ReadableLengths starts_;
    std::int64_t seqlen_;
};

void check_slots(const ReadableLengths& slots, const AppendProblem& p) {
    for (std::int64_t row = 0; row < p.rows_k; ++row)
        if (slots[row] < -1 || slots[row] >= p.pages * p.page_size)
            refuse(text("slots[", row, "]"), slots[row],
                   text("-1 (skipped) to ", p.pages * p.page_size - 1, ", the last of the cache"));
}

void check_pages(const AppendProblem& p, const AppendOperands& x, const Execution& execution,
                 const ReadableLengths& lengths, const Rows& rows) {
    const std::int64_t entries =
        p.batch == 0 || p.max_pages == 0 ? 0 : (p.batch - 1) * x.block_table_stride + p.max_pages;
    const ReadableLengths table({x.block_table, false}, entries, execution);
    for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::int64_t end = lengths[b] + rows.count(b);
        for (std::int64_t n = lengths[b] / p.page_size; n * p.page_size < end && rows.count(b) != 0; ++n) {
            const std::int64_t page = table[b * x.block_table_stride + n];
            if (page < 0 || page >= p.pages)
                refuse(text("block_table[", b, ", ", n, "]"), page,
                       text("0 to ", p.pages - 1, ", a page of the cache, since rows are appended there"));
        }
    }
}

void check_room(const AppendProblem& p, const ReadableLengths& lengths, const Rows& rows) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
        if (lengths[b] < 0 || lengths[b] > p.capacity())
            refuse(text("cache_seqlens[", b, "]"), lengths[b],
                   text("0 to ", p.capacity(), ", the rows that the cache has for a sequence"));
        if (rows.count(b) > p.capacity() - lengths[b])
            refuse(
                text("cache_seqlens[", b, "]"), lengths[b],
                text("at most ", p.capacity() - rows.count(b), ": ", rows.count(b), " new rows go behind it, and the ",
                     p.paged ? "pages of a sequence have " : "cache has ", p.capacity()));
    }
}

// The positions of a sequence's rows: first, first + 1, ..
void check_positions_from(const char* name, const ReadableLengths& first, const Rows& rows, std::int64_t batch,
                          std::int64_t positions, bool one_position) {
    for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t count = std::min<std::int64_t>(rows.count(b), one_position ? 1 : rows.count(b));
        if (count == 0) continue;
        if (first[b] < 0 || first[b] > positions - count)
            refuse(text(name, "[", b, "]"), first[b],
                   text("0 to ", positions - count, ": rotary_cos and rotary_sin have ", positions, " positions for ",
                        count, " rows"));
    }
}

void check_positions(const char* name, const Lengths& given, std::int64_t rows, std::int64_t positions,
                     const Execution& execution) {
    const ReadableLengths list(given, rows, execution);
    for (std::int64_t row = 0; row < rows; ++row)
        if (list[row] < 0 || list[row] >= positions)
            refuse(text(name, "[", row, "]"), list[row],
                   text("0 to ", positions - 1, ", the positions of rotary_cos and rotary_sin"));
}

}  // namespace

void check_append_values(const AppendProblem& p, const AppendOperands& x, const Execution& execution) {
    const Rows keys(x.cu_seqlens_k_new, "cu_seqlens_k_new", p.batch, p.rows_k, p.seqlen_k, execution);
    const Rows queries(x.cu_seqlens_q, "cu_seqlens_q", p.batch, p.rows_q, p.seqlen_q, execution);
    const ReadableLengths lengths(x.cache_seqlens, p.batch, execution);
    if (x.slots) {
        check_slots(ReadableLengths(x.slots, p.rows_k, execution), p);
    } else {
        check_room(p, lengths, keys);
        if (x.block_table != nullptr) check_pages(p, x, execution, lengths, keys);
    }
    if (const ReadableLengths rows(x.cache_batch_idx, p.batch, execution); rows)
        for (std::int64_t b = 0; b < p.batch; ++b)
            if (rows[b] < 0 || rows[b] >= p.pages)
                refuse(text("cache_batch_idx[", b, "]"), rows[b], text("0 to ", p.pages - 1, ", a row of the cache"));
    if (p.pairs == 0) return;
    const ReadableLengths offsets(x.rotary_offsets, p.batch, execution);
    const ReadableLengths& first = offsets ? offsets : lengths;
    const char* const name = offsets ? "rotary_offsets" : "cache_seqlens";
    if (x.positions)
        check_positions("positions", x.positions, p.rows_k, p.positions, execution);
    else
        check_positions_from(name, first, keys, p.batch, p.positions, false);
    if (x.positions_q)
        check_positions("positions_q", x.positions_q, p.rows_q, p.positions, execution);
    else
        check_positions_from(name, first, queries, p.batch, p.positions, p.one_position);
}

}  // namespace flashtile::api
