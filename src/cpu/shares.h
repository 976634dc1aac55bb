// shares.h: the tickets of a call, divided into one run of neighbouring tickets a thread. A thread first takes the
// tickets of its own share in order, so that what neighbours have in common stays in its caches. Then it takes tickets
// from the share that has most left, since threads are not equally fast: two of them may share a core.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace flashtile::cpu {

class Shares {
public:
    Shares(std::int64_t tickets, std::int32_t threads)
        : shares_(static_cast<std::size_t>(std::max<std::int64_t>(std::min<std::int64_t>(threads, tickets), 0))) {
        const std::int64_t n = count();
        for (std::int64_t s = 0; s < n; ++s) {
            at(s).next = tickets * s / n;
            at(s).end = tickets * (s + 1) / n;
        }
    }

    std::int64_t count() const { return static_cast<std::int64_t>(shares_.size()); }

    // The next ticket for the thread that has this share, or -1 once no share has any left.
    std::int64_t next(std::int64_t share) {
        while (true) {
            const std::int64_t ticket = at(share).next.fetch_add(1, std::memory_order_relaxed);
            if (ticket < at(share).end) return ticket;
            share = fullest();
            if (share < 0) return -1;
        }
    }

private:
    struct alignas(64) Share {
        std::atomic<std::int64_t> next{0};
        std::int64_t end = 0;
    };

    Share& at(std::int64_t share) { return shares_[static_cast<std::size_t>(share)]; }

    std::int64_t fullest() {
        std::int64_t best = -1, most = 0;
        for (std::int64_t s = 0; s < count(); ++s) {
            const std::int64_t left = at(s).end - at(s).next.load(std::memory_order_relaxed);
            if (left > most) {
                best = s;
                most = left;
            }
        }
        return best;
    }

    std::vector<Share> shares_;
};

}  // namespace flashtile::cpu
