// key_blocks.h: the blocks of K and V that forward.h walks, as operands of its products. Rows that must be widened,
// paired, or gathered from far apart are copied into a buffer; to hide the memory's latency the next block is copied in
// slices between the panels of the current one, each slice brought nearer while the panel before it is worked on.
#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/moves.h"
#include "cpu/kernels/panel.h"
#include "cpu/kernels/prefetch.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class KeyBlocks {
    using Scalar = typename Math::Scalar;

public:
    // Blocks of at most `most` keys, a multiple of kStep. The spare columns of V have room for `spare` keys. With
    // `ahead` the next block is copied while the current one is in use. Without it, `held` says which keys are still in
    // the buffer from the call before.
    KeyBlocks(Arena& arena, int64_t most, int64_t spare, bool ahead, int64_t d, int64_t dv, cpu::HeldKeys* held)
        : held_(held), k_step_(row_step<Math>(d)), v_step_(column_step<Math>(dv)), d_(d), dv_(dv), ahead_(ahead) {
        for (int n = 0; n < (ahead ? 2 : 1); ++n) {
            buffers_[n].k = arena.take<Scalar>(most * k_step_);
            buffers_[n].v = arena.take<Scalar>(most / Math::kStep * v_step_);
        }
        spare_v_ = arena.take<Scalar>(spare / Math::kStep * v_step_);
    }

    // True if K and V are read where they lie.
    static bool in_place(const KeyRows& k, const KeyRows& v, int64_t d, int64_t dv) {
        return Math::kPack == 1 && k.dtype == DType::fp32 && lies_close(k, d) && lies_close(v, dv);
    }

    // Makes keys [first, end) the current block; steps start at `first`. The first `hidden` keys only complete a step,
    // and their V reads as zero.
    void load(const Head& head, int64_t first, int64_t end, int64_t hidden) {
        if (holds(first, end, hidden)) return;
        if constexpr (kCounted) {
            count_load(Moved::k, (end - first) * d_, head.k.bytes);
            count_load(Moved::v, (end - first) * dv_, head.v.bytes);
        }
        if (next_.first != first || next_.end != end) prepare(head, first, end);
        copy(head, next_.end);
        current_ = next_;
        if (hidden > 0) {
            uint8_t shown[Math::kStep];
            for (int64_t n = 0; n < Math::kStep; ++n) shown[n] = n >= hidden;
            copy_columns<Math>(head.v, first, lesser(first + Math::kStep, end), dv_, shown, buffers_[active_].v);
        }
        if (ahead_) {
            active_ ^= 1;
        } else {
            held_->first = first;
            held_->end = hidden > 0 ? first : end;
        }
        next_ = {};
    }

    // Says that keys [first, end) are the next block, which is to be copied in `slices` slices.
    void expect(const Head& head, int64_t first, int64_t end, int64_t slices) {
        if (!ahead_) return;
        prepare(head, first, end);
        slice_ = round_up((end - first + slices - 1) / slices, Math::kStep);
        approach(head);
    }

    // Called between the tiles of a product: prefetches some lines of the next slice.
    void step() {
        next_k_.step(kLinesAStep);
        next_v_.step(kLinesAStep);
    }

    // Called between panels: copies the slice that was prefetched, and starts to prefetch the one after it.
    void advance(const Head& head) {
        copy(head, lesser(next_.copied + slice_, next_.end));
        approach(head);
    }

    // The operands of keys from `first` on; first is at the start of a step.
    Operand2d<Math> k(int64_t first) const {
        return {current_.k.data + (first - current_.first) * current_.k.row, current_.k.row, current_.k.step};
    }
    Operand2d<Math> v(int64_t first) const {
        return {current_.v.data + (first - current_.first) / Math::kStep * current_.v.step, 1, current_.v.step};
    }
    // A buffer for columns of V that one panel needs for itself.
    Scalar* spare_v() const { return spare_v_; }

private:
    static constexpr int64_t kLinesAStep = 4;
    struct Buffer {
        Scalar *k, *v;
    };
    struct Block {
        int64_t first = 0, end = 0, copied = 0;
        Operand2d<Math> k{}, v{};
    };

    // True if keys [first, end), or more keys from `first` on, are in the buffer; they are then the current block. Keys
    // past `end` meet a P of 0. They need not read as zero, since another query of the head sees them.
    bool holds(int64_t first, int64_t end, int64_t hidden) {
        if (ahead_ || hidden > 0 || held_->first != first || held_->end < end) return false;
        current_ = {first, end, end, {buffers_[0].k, k_step_, 1}, {buffers_[0].v, 1, v_step_}};
        return true;
    }

    void prepare(const Head& head, int64_t first, int64_t end) {
        const Buffer& buffer = buffers_[active_];
        next_ = {first, end, first, {buffer.k, k_step_, 1}, {buffer.v, 1, v_step_}};
        if constexpr (Math::kPack == 1)
            if (in_place(head.k, head.v, d_, dv_) && first < end) {
                next_.k = rows_operand<Math>(head.k, first, end, d_, buffer.k);
                next_.v = columns_operand<Math>(head.v, first, end, dv_, nullptr, buffer.v);
                next_.copied = end;
            }
    }

    void copy(const Head& head, int64_t to) {
        const int64_t from = next_.copied, at = from - next_.first;
        if (from >= to) return;
        copy_rows<Math>(head.k, from, to, d_, buffers_[active_].k + at * k_step_);
        copy_columns<Math>(head.v, from, to, dv_, nullptr, buffers_[active_].v + at / Math::kStep * v_step_);
        next_.copied = to;
    }

    void approach(const Head& head) {
        const int64_t to = lesser(next_.copied + slice_, next_.end);
        next_k_ = Prefetch(head.k, next_.copied, to, d_);
        next_v_ = Prefetch(head.v, next_.copied, to, dv_);
    }

    cpu::HeldKeys* held_;
    int64_t k_step_, v_step_, d_, dv_;
    bool ahead_;
    Buffer buffers_[2];
    Scalar* spare_v_;
    int active_ = 0;  // the buffer that the next block goes to
    Block current_, next_;
    int64_t slice_ = 0;
    Prefetch next_k_, next_v_;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
