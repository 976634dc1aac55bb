// schedule.h: splits a problem's rows into blocks and gives each block a ticket. Blocks are counted over batch, heads
// and rows (section 3.2 of the paper), so that a single long head keeps all cores busy, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/kernels.h"

namespace flashtile::cpu {

class Schedule {
public:
    // Splits every (sequence, head) into blocks of `rows` rows. `lengths` are the cumulative lengths of packed
    // sequences. If `lengths` is empty, each of the `batch` sequences has `length` rows. Packed sequences of fewer than
    // `fewest` rows are left out.
    Schedule(std::int64_t batch, std::int64_t heads, std::int64_t length, const Lengths& lengths, std::int64_t rows,
             std::int64_t fewest = 1)
        : heads_(heads), length_(length), rows_(rows), blocks_((length + rows - 1) / rows), lengths_(lengths) {
        tickets_ = batch * heads * blocks_;
        if (!lengths) return;
        first_.reserve(static_cast<std::size_t>(batch) + 1);
        tickets_ = 0;
        for (std::int64_t b = 0; b < batch; ++b) {
            first_.push_back(tickets_);
            if (length_of(b) >= fewest) tickets_ += heads * ((length_of(b) + rows - 1) / rows);
        }
    }

    std::int64_t tickets() const { return tickets_; }

    // Tickets in the order of heads. Within a head the last block comes first, since with a causal mask it sees the
    // most keys.
    Block by_head(std::int64_t ticket) const {
        const Sequence s = sequence_of(ticket);
        return block(s, ticket / s.blocks, s.blocks - 1 - ticket % s.blocks);
    }

    // Tickets in the order of blocks within a group of `together` heads: the first block of each head, then the second
    // of each, and so on; then the next group. Blocks of one head wait for each other, so they should not be
    // neighbours. A small group lets few heads share the caches.
    Block by_turns(std::int64_t ticket, std::int64_t together) const {
        const Sequence s = sequence_of(ticket);
        const std::int64_t first = ticket / (together * s.blocks) * together;
        const std::int64_t heads = std::min(together, s.heads - first);
        const std::int64_t rest = ticket - first * s.blocks;
        return block(s, first + rest % heads, rest / heads);
    }

private:
    // Heads of equal length: those of one packed sequence or, in a dense batch, all heads of all sequences.
    struct Sequence {
        std::int64_t b, heads, blocks, length;
    };

    // The sequence of a ticket. Changes `ticket` so that it counts from the start of that sequence.
    Sequence sequence_of(std::int64_t& ticket) const {
        if (!lengths_) return {0, tickets_ / std::max<std::int64_t>(blocks_, 1), blocks_, length_};
        // upper_bound finds the last sequence that starts at or before this ticket. Empty sequences share their start
        // with the next one and are skipped so.
        const auto b = std::upper_bound(first_.begin(), first_.end(), ticket) - first_.begin() - 1;
        ticket -= first_[static_cast<std::size_t>(b)];
        return {b, heads_, (length_of(b) + rows_ - 1) / rows_, length_of(b)};
    }

    Block block(const Sequence& s, std::int64_t head, std::int64_t n) const {
        return {s.b + head / heads_, head % heads_, n * rows_, std::min((n + 1) * rows_, s.length)};
    }

    std::int64_t length_of(std::int64_t b) const { return lengths_[b + 1] - lengths_[b]; }

    std::int64_t heads_, length_, rows_, blocks_, tickets_;
    Lengths lengths_;
    std::vector<std::int64_t> first_;
};

}  // namespace flashtile::cpu
