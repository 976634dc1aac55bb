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

// Asks for one line of each page of memory that has something of rows [first, end), of which `read_bytes` from their
// first element on are read. Where a page is not in the TLB a prefetch waits for the walk of the page tables, and
// nothing behind it retires. Prefetches side by side wait together, where each alone would wait as long as all. Inlined
// always, as step() below.
[[gnu::always_inline]] inline void prefetch_pages(const KeyRows& x, int64_t first, int64_t end, int64_t read_bytes) {
    constexpr int64_t kPage = 4096;
    const int64_t row_bytes = x.stride_row * x.bytes;
    const bool apart = row_bytes > kPage;  // then there may be much between rows that nobody reads
    for (int64_t row = first, next; row < end; row = next) {
        next = apart ? row + 1 : x.end_of_run(row, end);
        const char* const from = x.at(row);
        const int64_t bytes = apart ? lesser(read_bytes, row_bytes) : (next - row) * row_bytes;
        for (int64_t at = 0; at < bytes; at += kPage) __builtin_prefetch(from + at, 0, 2);
    }
}

// The rows of a tile of several heads, in the order in which they lie in memory.
class PrefetchHeads {
public:
    PrefetchHeads() = default;
    // Rows [first, end) of `cols` columns; of the first of `heads` heads, which are stride_head elements apart, they
    // are x, which must outlive this.
    PrefetchHeads(const KeyRows& x, int64_t first, int64_t end, int64_t heads, int64_t stride_head, int64_t cols)
        : x_(&x), row_(first), end_(end) {
        const bool adjacent = stride_head == cols;
        run_bytes_ = (adjacent ? heads : 1) * cols * x.bytes;
        runs_ = adjacent ? 1 : heads;
        next_run_bytes_ = stride_head * x.bytes;
        start_run();
    }

    // The next two lines. Inlined always: GCC takes a function that only prefetches for one without effect, and leaves
    // out calls of it.
    [[gnu::always_inline]] void step() {
        if (at_ == nullptr) return;
        __builtin_prefetch(at_, 0, 2);
        __builtin_prefetch(at_ + kLine, 0, 2);
        at_ += 2 * kLine;
        if (at_ >= run_end_) start_run();
    }

private:
    static constexpr int64_t kLine = 64;

    void start_run() {
        at_ = nullptr;
        if (row_ >= end_) return;
        at_ = x_->at(row_) + run_ * next_run_bytes_;
        run_end_ = at_ + run_bytes_;
        if (++run_ < runs_) return;
        run_ = 0;
        ++row_;
    }

    const KeyRows* x_ = nullptr;
    int64_t row_ = 0, end_ = 0;                      // from the next run on
    int64_t run_ = 0, runs_ = 0;                     // of a row
    int64_t run_bytes_ = 0, next_run_bytes_ = 0;     // of a run, and how far the row's next one is
    const char *at_ = nullptr, *run_end_ = nullptr;  // in this run; null: nothing is left
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
