// decode_tasks.h: the tasks of sequences with few queries: one for each key head, or for each split of its keys. Long
// sequences come first, so that none is left over at the end. The key heads of a split are neighbours: their rows often
// share pages of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/plan.h"
#include "shared/key_splits.h"

namespace flashtile::cpu {

class DecodeTasks {
public:
    DecodeTasks(const Problem& p, const Operands& x, const DecodePlan& plan) : kv_heads_(p.kv_heads), plan_(plan) {
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t queries = x.cu_seqlens_q ? x.cu_seqlens_q[b + 1] - x.cu_seqlens_q[b] : p.seqlen_q;
            if (queries > 0 && queries <= plan.queries) sequences_.push_back({b, keys_of(p, x, b), 0, 0});
        }
        std::stable_sort(sequences_.begin(), sequences_.end(),
                         [](const Sequence& a, const Sequence& b) { return a.keys > b.keys; });
        for (Sequence& s : sequences_) {
            s.splits = KeySplits::of(s.keys, {p.num_splits}).count;
            s.first = tickets_;
            tickets_ += kv_heads_ * (plan_.stored ? s.splits : 1);
        }
    }

    std::int64_t count() const { return tickets_; }

    KeyRange operator[](std::int64_t ticket) const {
        const auto after = std::upper_bound(sequences_.begin(), sequences_.end(), ticket,
                                            [](std::int64_t t, const Sequence& s) { return t < s.first; });
        const Sequence& s = *(after - 1);
        const std::int64_t rest = ticket - s.first;
        if (!plan_.stored) return {s.b, rest, 0, s.splits};
        const std::int64_t split = rest / kv_heads_;
        return {s.b, rest % kv_heads_, split, split + 1};
    }

    std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }
    std::int64_t sequence(std::int64_t n) const { return sequences_[static_cast<std::size_t>(n)].b; }

private:
    struct Sequence {
        std::int64_t b, keys, splits, first;
    };

    static std::int64_t keys_of(const Problem& p, const Operands& x, std::int64_t b) {
        const std::int64_t keys = x.cu_seqlens_k ? x.cu_seqlens_k[b + 1] - x.cu_seqlens_k[b] : p.seqlen_k;
        const std::int64_t used = x.seqused_k ? std::min(keys, x.seqused_k[b]) : keys;
        if (!p.appends) return used;
        const Lengths& starts = x.append.cu_seqlens_k_new;
        return used + (starts ? starts[b + 1] - starts[b] : p.append.seqlen_k);
    }

    std::int64_t kv_heads_, tickets_ = 0;
    DecodePlan plan_;
    std::vector<Sequence> sequences_;
};

}  // namespace flashtile::cpu
