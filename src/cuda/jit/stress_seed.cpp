// stress_seed.cpp: see stress_seed.h.
#include "cuda/jit/stress_seed.h"

#include <charconv>
#include <limits>
#include <string>

#include "core/environment.h"
#include "core/error.h"

namespace flashtile::gpu {

unsigned stress_seed() {
    const std::string text = environment("FLASHTILE_KERNEL_STRESS");
    if (text.empty()) return 0;
    unsigned seed = 0;
    const auto [end, reason] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (reason != std::errc() || end != text.data() + text.size())
        throw Error(FLASHTILE_INVALID_ARGUMENT, "FLASHTILE_KERNEL_STRESS is '" + text +
                                                    "', allowed is a number from 0 (off) to " +
                                                    std::to_string(std::numeric_limits<unsigned>::max()));
    return seed;
}

}  // namespace flashtile::gpu
