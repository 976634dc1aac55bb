// decode_tasks.h: the tasks of sequences with few queries: one for each key head, or for each split of its keys, or
// for some splits of the keys of all heads. Long sequences come first, so that none is left over at the end. The key
// heads of a split are neighbours: their rows often share pages of memory. Splits of a prefix are a task of all
// sequences that share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/plan.h"
#include "shared/key_splits.h"

namespace flashtile::cpu {

class DecodeTasks {
public:
    DecodeTasks(const Problem& p, const Operands& x, const DecodePlan& plan)
        : plan_(plan), per_split_(p.kv_heads / plan.key_heads) {
        for (std::int64_t b = 0; b < p.batch; ++b) {
            const std::int64_t queries = x.cu_seqlens_q ? x.cu_seqlens_q[b + 1] - x.cu_seqlens_q[b] : p.seqlen_q;
            if (queries == 0 || queries > plan.queries) continue;
            const std::int64_t keys = keys_of(p, x, b);
            const KeySplits splits = KeySplits::of(keys, {p.num_splits});
            runs_.push_back({b, b + 1, 0, splits.count, keys, splits.keys, keys - queries});
        }
        std::vector<Run> shared;
        if (plan.stored && every_query_sees_its_past(p, x))
            for (std::int64_t group = 0; group < p.prefix_groups; ++group) share(x, group, shared);
        std::stable_sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.keys > b.keys; });
        for (const Run& run : runs_) sequences_.push_back(run.b);
        runs_.insert(runs_.begin(), shared.begin(), shared.end());
        for (Run& run : runs_) {
            run.ticket = tickets_;
            tickets_ +=
                per_split_ * (plan_.stored ? (run.end - run.first + plan_.task_splits - 1) / plan_.task_splits : 1);
        }
    }

    std::int64_t count() const { return tickets_; }

    KeyRange operator[](std::int64_t ticket) const {
        const auto after = std::upper_bound(runs_.begin(), runs_.end(), ticket,
                                            [](std::int64_t t, const Run& run) { return t < run.ticket; });
        const Run& run = *(after - 1);
        const std::int64_t rest = ticket - run.ticket;
        const std::int64_t head = rest % per_split_ * plan_.key_heads;
        const std::int64_t end_head = head + plan_.key_heads;
        if (!plan_.stored) return {run.b, run.end_b, head, end_head, run.first, run.end};
        const std::int64_t split = run.first + rest / per_split_ * plan_.task_splits;
        return {run.b, run.end_b, head, end_head, split, std::min(split + plan_.task_splits, run.end)};
    }

    // Whose parts are to be combined.
    std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }
    std::int64_t sequence(std::int64_t n) const { return sequences_[static_cast<std::size_t>(n)]; }

private:
    // Splits [first, end) of a sequence, or of the prefix of several.
    struct Run {
        std::int64_t b, end_b, first, end;
        std::int64_t keys, split_keys;  // of the sequence, and of a split
        std::int64_t past;              // keys that causal queries all see
        std::int64_t ticket = 0;
    };

    static std::int64_t keys_of(const Problem& p, const Operands& x, std::int64_t b) {
        const std::int64_t keys = x.cu_seqlens_k ? x.cu_seqlens_k[b + 1] - x.cu_seqlens_k[b] : p.seqlen_k;
        const std::int64_t used = x.seqused_k ? std::min(keys, x.seqused_k[b]) : keys;
        if (!p.appends) return used;
        const Lengths& starts = x.append.cu_seqlens_k_new;
        return used + (starts ? starts[b + 1] - starts[b] : p.append.seqlen_k);
    }

    // A key that is hidden from one sequence must not reach it by another that sees it: its V may be NaN.
    static bool every_query_sees_its_past(const Problem& p, const Operands& x) {
        return p.window_left < 0 && p.attention_chunk == 0 && !p.top_left && p.diagonal == 0 && !p.diagonals &&
               !p.positions && !p.first_k && !p.mask && !x.bias;
    }

    // The first splits of a group's sequences, as far as they lie in the prefix, become one run.
    void share(const Operands& x, std::int64_t group, std::vector<Run>& shared) {
        const std::int64_t b = x.prefix_groups[group], end_b = x.prefix_groups[group + 1];
        const auto from = [&](std::int64_t sequence) {
            return std::ranges::lower_bound(runs_, sequence, {}, &Run::b);  // still in the order of b
        };
        const auto first = from(b), end = from(end_b);
        if (end - first < 2) return;
        std::int64_t keys = x.prefix_lengths[group];
        for (auto run = first; run != end; ++run) {
            if (run->split_keys != first->split_keys) return;
            keys = std::min(keys, run->past);
        }
        const std::int64_t splits = keys / first->split_keys;
        if (splits <= 0) return;
        for (auto run = first; run != end; ++run) run->first = splits;
        shared.push_back({b, end_b, 0, splits, keys, first->split_keys, keys});
    }

    DecodePlan plan_;
    std::int64_t per_split_;  // tasks
    std::int64_t tickets_ = 0;
    std::vector<Run> runs_;
    std::vector<std::int64_t> sequences_;
};

}  // namespace flashtile::cpu
