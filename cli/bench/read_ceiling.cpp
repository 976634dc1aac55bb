// read_ceiling.cpp: see read_ceiling.h.
#include "bench/read_ceiling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "bench/together.h"

namespace flashtile::cli::bench {
namespace {

constexpr double look_seconds = 0.004;

// Loads of 16 bytes, which any CPU has, are enough: memory and the last-level cache are slower.
using Vector = std::uint64_t __attribute__((vector_size(16)));

__attribute__((always_inline)) inline Vector load(const std::byte* from) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// The result depends on every byte, so that no load is left out. Two streams, since some prefetchers stop at each page.
std::uint64_t read_all(const std::byte* from, std::size_t bytes) {
    const std::size_t half = bytes / 128 * 64;
    Vector a = {}, b = {}, c = {}, d = {}, e = {}, f = {}, g = {}, h = {};
    for (const std::byte *first = from, *second = from + half; first != from + half; first += 64, second += 64) {
        a ^= load(first), b ^= load(first + 16), c ^= load(first + 32), d ^= load(first + 48);
        e ^= load(second), f ^= load(second + 16), g ^= load(second + 32), h ^= load(second + 48);
    }
    const Vector all = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
    return all[0] ^ all[1];
}

// The size that Linux gives for the highest level of the first CPU's caches: "32768K".
std::int64_t size_by_sysfs() {
    std::int64_t bytes = 0;
    for (int index = 0, highest = 0;; ++index) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + '/';
        int level = 0;
        std::int64_t kib = 0;
        if (!(std::ifstream(folder + "level") >> level) || !(std::ifstream(folder + "size") >> kib)) return bytes;
        if (level >= highest) highest = level, bytes = kib << 10;
    }
}

}  // namespace

ReadCeiling::ReadCeiling(std::size_t bytes, int threads)
    : buffer_(random_numbers(flashtile::fp32, static_cast<std::int64_t>(bytes / sizeof(float)), 5)), threads_(threads) {
    const double gbytes = look();
    const double once = static_cast<double>(buffer_.bytes()) / gbytes * 1e-9;
    rounds_ = static_cast<int>(std::clamp(std::ceil(look_seconds / once), 1.0, 100000.0));
}

double ReadCeiling::look() {
    const std::size_t part = buffer_.bytes() / static_cast<std::size_t>(threads_);
    std::vector<std::uint64_t> kept(static_cast<std::size_t>(threads_) * 8);  // a line each
    const double seconds = seconds_together(threads_, 1, [&](int thread) {
        const auto* from = static_cast<const std::byte*>(buffer_.data()) + static_cast<std::size_t>(thread) * part;
        for (int round = 0; round < rounds_; ++round)
            kept[static_cast<std::size_t>(thread) * 8] ^= read_all(from, part) + static_cast<std::uint64_t>(round);
    });
    return static_cast<double>(part) * threads_ * rounds_ / seconds * 1e-9;
}

std::int64_t last_level_cache_bytes() {
    const std::int64_t bytes = size_by_sysfs();
    return bytes > 0 ? bytes : std::int64_t{32} << 20;
}

}  // namespace flashtile::cli::bench
