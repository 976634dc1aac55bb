// available_memory.cpp: see available_memory.h.
#include "available_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace flashtile::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// The number in a file that holds one number. A cgroup file may hold "max" instead.
std::optional<std::uint64_t> read_number(const fs::path& path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    if (file >> value) return value;
    return std::nullopt;
}

// The number that follows `key` in a file of such lines.
std::uint64_t read_entry(const fs::path& path, std::string_view key) {
    std::ifstream file(path);
    std::string word;
    std::uint64_t value = 0;
    while (file >> word) {
        if (word == key && file >> value) return value;
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

// The two generations of control groups name their files differently.
struct Names {
    const char* root;
    const char* limit;
    const char* usage;
    std::array<const char*, 2> cache;  // entries of memory.stat
};
constexpr Names version_1 = {"/sys/fs/cgroup/memory",
                             "memory.limit_in_bytes",
                             "memory.usage_in_bytes",
                             {"total_inactive_file", "total_active_file"}};
constexpr Names version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};

std::uint64_t left_in(const fs::path& group, const Names& names) {
    const auto limit = read_number(group / names.limit), usage = read_number(group / names.usage);
    if (!limit || !usage) return unlimited;
    std::uint64_t used = *usage;
    for (const char* entry : names.cache) used -= std::min(used, read_entry(group / "memory.stat", entry));
    return *limit - std::min(used, *limit);
}

// A line of /proc/self/cgroup is "number:controllers:/path"; version 2 has no controllers.
std::uint64_t left_in_groups() {
    std::uint64_t least = unlimited;
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && controllers != "memory") continue;
        const Names& names = controllers.empty() ? version_2 : version_1;
        fs::path group = fs::path(line.substr(second + 1)).relative_path();
        // Every group from this one up to the root may set a limit. In a container the inner path may be missing.
        for (;; group = group.parent_path()) {
            least = std::min(least, left_in(fs::path(names.root) / group, names));
            if (group.empty()) break;
        }
    }
    return least;
}

}  // namespace

std::uint64_t available_memory() {
    const std::uint64_t kib = read_entry("/proc/meminfo", "MemAvailable:");
    return std::min(kib != 0 ? kib * 1024 : unlimited, left_in_groups());
}

std::string format_bytes(std::uint64_t bytes) {
    constexpr std::array<const char*, 7> units = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const auto unit = static_cast<std::size_t>(bytes == 0 ? 0 : (std::bit_width(bytes) - 1) / 10);
    const double value = static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << (10 * unit));
    return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, units.at(unit));
}

}  // namespace flashtile::cli
