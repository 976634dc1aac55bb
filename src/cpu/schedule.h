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

    enum class Order {
        by_head,  // a head's blocks one after the other, the last first: it sees the most keys under a causal mask
        first_of_each,  // the first block of every head, then the second: neighbours do not wait for each other
    };

    Block block(std::int64_t ticket, Order order) const {
        // Dense: all sequences are alike, and so are all heads. Packed: find the sequence, then its heads are alike.
        std::int64_t b = 0, heads = tickets_ / std::max<std::int64_t>(blocks_, 1), blocks = blocks_, length = length_;
        if (lengths_) {
            // The last sequence that starts at or before this ticket; an empty one shares its start with the next.
            b = std::upper_bound(first_.begin(), first_.end(), ticket) - first_.begin() - 1;
            ticket -= first_[static_cast<std::size_t>(b)];
            heads = heads_;
            length = length_of(b);
            blocks = (length + rows_ - 1) / rows_;
        }
        const bool by_head = order == Order::by_head;
        const std::int64_t head = by_head ? ticket / blocks : ticket % heads;
        const std::int64_t n = by_head ? blocks - 1 - ticket % blocks : ticket / heads;
        return {b + head / heads_, head % heads_, n * rows_, std::min((n + 1) * rows_, length)};
    }

private:
    std::int64_t length_of(std::int64_t b) const { return lengths_[b + 1] - lengths_[b]; }

    std::int64_t heads_, length_, rows_, blocks_, tickets_;
    Lengths lengths_;
    std::vector<std::int64_t> first_;
};

}  // namespace flashtile::cpu
