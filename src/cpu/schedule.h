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

    // Tickets walk a head's blocks in ascending order, or from the last (which sees the most keys under a causal mask).
    Block block(std::int64_t ticket, bool last_first = false) const {
        std::int64_t b, n, blocks, length;
        if (!lengths_) {
            blocks = blocks_;
            length = length_;
            b = ticket / (heads_ * blocks);
            n = ticket % (heads_ * blocks);
        } else {
            // The last sequence that starts at or before this ticket; empty ones share their start with the next.
            b = std::upper_bound(first_.begin(), first_.end(), ticket) - first_.begin() - 1;
            length = length_of(b);
            blocks = (length + rows_ - 1) / rows_;
            n = ticket - first_[static_cast<std::size_t>(b)];
        }
        const std::int64_t at = last_first ? blocks - 1 - n % blocks : n % blocks;
        return {b, n / blocks, at * rows_, std::min((at + 1) * rows_, length)};
    }

private:
    std::int64_t length_of(std::int64_t b) const { return lengths_[b + 1] - lengths_[b]; }

    std::int64_t heads_, length_, rows_, blocks_, tickets_;
    Lengths lengths_;
    std::vector<std::int64_t> first_;
};

}  // namespace flashtile::cpu
