// readable_lengths.h: lengths and indices where the host can read them: the caller's own memory, or a copy of what lies
// on a device.
#pragma once

#include <cstddef>
#include <vector>

#include "core/backend.h"

namespace flashtile::api {

class ReadableLengths {
public:
    ReadableLengths(const Lengths& given, std::int64_t count, const Execution& execution) : lengths_(given) {
        if (execution.device_type == FLASHTILE_CPU || !given) return;
        copy_.resize(static_cast<std::size_t>(count) * (given.wide ? 8 : 4));
        backend_for(execution.device_type).read(copy_.data(), given.data, copy_.size(), execution);
        lengths_.data = copy_.data();
    }
    ReadableLengths(const ReadableLengths&) = delete;
    ReadableLengths& operator=(const ReadableLengths&) = delete;

    explicit operator bool() const { return static_cast<bool>(lengths_); }
    std::int64_t operator[](std::int64_t n) const { return lengths_[n]; }

private:
    Lengths lengths_;
    std::vector<std::byte> copy_;
};

// Cumulative lengths: batch + 1 of them, which start at 0, never decrease and end at most at the total.
void check_ascending(const ReadableLengths& cu, std::int64_t batch, std::int64_t total, const char* name);

}  // namespace flashtile::api
