// schedule.h: how a problem's rows are split into blocks, one ticket each (the paper's section 3.2: batch x heads x
// blocks of rows, so that one head fills all cores as well as many heads do).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/kernels.h"

namespace flashtile::cpu {

class Schedule {
public:
    // Blocks of `rows` rows of every (sequence, head). `lengths` is the cumulative lengths of packed sequences, or
    // absent: then each of `batch` sequences has `length` rows.
    Schedule(std::int64_t batch, std::int64_t heads, std::int64_t length, const Lengths& lengths, std::int64_t rows)
        : heads_(heads), length_(length), rows_(rows), blocks_((length + rows - 1) / rows), lengths_(lengths) {
        tickets_ = batch * heads * blocks_;
        if (!lengths) return;
        first_.reserve(static_cast<std::size_t>(batch) + 1);
        tickets_ = 0;
        for (std::int64_t b = 0; b < batch; ++b) {
            first_.push_back(tickets_);
            tickets_ += heads * ((length_of(b) + rows - 1) / rows);
        }
    }

    std::int64_t tickets() const { return tickets_; }

    // A head's blocks one after the other, the last first: it sees the most keys under a causal mask.
    Block by_head(std::int64_t ticket) const {
        const Sequence s = sequence_of(ticket);
        return block(s, ticket / s.blocks, s.blocks - 1 - ticket % s.blocks);
    }

    // The first block of `together` heads, then their second, and so on; then the next heads. Blocks of one head that
    // must wait for each other are then not neighbours, and no more heads than need be share the caches.
    Block by_turns(std::int64_t ticket, std::int64_t together) const {
        const Sequence s = sequence_of(ticket);
        const std::int64_t first = ticket / (together * s.blocks) * together;
        const std::int64_t heads = std::min(together, s.heads - first);
        const std::int64_t rest = ticket - first * s.blocks;
        return block(s, first + rest % heads, rest / heads);
    }

private:
    // Heads that are alike: those of one packed sequence, or dense all of them.
    struct Sequence {
        std::int64_t b, heads, blocks, length;
    };

    // Also makes `ticket` count from the start of its sequence.
    Sequence sequence_of(std::int64_t& ticket) const {
        if (!lengths_) return {0, tickets_ / std::max<std::int64_t>(blocks_, 1), blocks_, length_};
        // The last sequence that starts at or before this ticket; an empty one shares its start with the next.
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
