// prefetch.h: brings rows that are needed soon into the level-2 cache, a few lines at a time between other work. The
// rows of one head among many lie on different pages, where the hardware does not look ahead by itself.
#pragma once

#include "cpu/kernels/head.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

class Prefetch {
public:
    Prefetch() = default;
    // Rows [first, end) of `cols` elements. Rows that lie close together need no help.
    Prefetch(const Rows& x, int64_t first, int64_t end, int64_t cols) : Prefetch(x, first, end, cols, nullptr) {}
    // Rows of pages too; `x` must outlive this.
    Prefetch(const KeyRows& x, int64_t first, int64_t end, int64_t cols)
        : Prefetch(x, first, end, cols, x.paged() ? &x : nullptr) {
        next_ = first + 1;
    }

    int64_t lines() const { return rows_ * ((bytes_ + kLine - 1) / kLine); }

    // The next `count` lines.
    void step(int64_t count) {
        for (; count > 0 && rows_ > 0; --count) {
            __builtin_prefetch(row_ + at_, 0, 2);
            at_ += kLine;
            if (at_ < bytes_) continue;
            at_ = 0;
            --rows_;
            if (paged_ == nullptr)
                row_ += stride_;
            else if (rows_ > 0)
                row_ = paged_->at(next_++);
        }
    }

private:
    static constexpr int64_t kLine = 64;

    template <class AnyRows>
    Prefetch(const AnyRows& x, int64_t first, int64_t end, int64_t cols, const KeyRows* paged)
        : row_(first < end ? x.at(first) : nullptr),
          stride_(x.stride_row * x.bytes),
          bytes_(cols * x.bytes),
          rows_(first<end && x.stride_row> 2 * cols ? end - first : 0),
          paged_(paged) {}

    const char* row_ = nullptr;
    int64_t stride_ = 0, bytes_ = 0, rows_ = 0, at_ = 0;
    const KeyRows* paged_ = nullptr;
    int64_t next_ = 0;  // the row after row_, of pages
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
