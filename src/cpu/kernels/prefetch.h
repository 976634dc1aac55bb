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
    Prefetch(const Rows& x, int64_t first, int64_t end, int64_t cols)
        : row_(first < end ? x.at(first) : nullptr),
          stride_(x.stride_row * x.bytes),
          bytes_(cols * x.bytes),
          rows_(first < end && x.stride_row > 2 * cols ? end - first : 0) {}

    int64_t lines() const { return rows_ * ((bytes_ + kLine - 1) / kLine); }

    // The next `count` lines.
    void step(int64_t count) {
        for (; count > 0 && rows_ > 0; --count) {
            __builtin_prefetch(row_ + at_, 0, 2);
            at_ += kLine;
            if (at_ < bytes_) continue;
            at_ = 0;
            row_ += stride_;
            --rows_;
        }
    }

private:
    static constexpr int64_t kLine = 64;

    const char* row_ = nullptr;
    int64_t stride_ = 0, bytes_ = 0, rows_ = 0, at_ = 0;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
