// stress_seed.cpp: see stress_seed.h.
#include "cuda/jit/stress_seed.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "core/error.h"

namespace flashtile::gpu {

unsigned stress_seed() {
    const char* const set = std::getenv("FLASHTILE_KERNEL_STRESS");
    const std::string_view text = set != nullptr ? set : "";
    if (text.empty()) return 0;
    unsigned seed = 0;
    const auto [end, reason] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (reason != std::errc() || end != text.data() + text.size())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "FLASHTILE_KERNEL_STRESS is '" + std::string(text) +
                                                    "', allowed is a number from 0 (off) to " +
                                                    std::to_string(std::numeric_limits<unsigned>::max()));
    return seed;
}

}  // namespace flashtile::gpu
