// read_ceiling.h: how fast this machine reads memory just now: all threads go once over a buffer as large as the keys
// and values of a point. Beyond the last-level cache that is the memory's bandwidth, within it the cache's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numbers.h"

namespace flashtile::cli::bench {

class ReadCeiling {
public:
    ReadCeiling(std::size_t bytes, int threads);

    // GB/s of some milliseconds of reading.
    double look();

private:
    Numbers buffer_;
    int threads_;
    int rounds_ = 1;  // over the buffer, so that a look is not over at once
};

// Of this CPU; 32 MiB where the system does not say.
std::int64_t last_level_cache_bytes();

}  // namespace flashtile::cli::bench
