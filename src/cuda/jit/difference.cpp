// difference.cpp: see difference.h.
#include "cuda/jit/difference.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace flashtile::gpu {
namespace {

constexpr std::size_t kHashed = 8;          // bytes by which a piece is found
constexpr std::size_t kShortest = 12;       // below that a piece's step takes more than its bytes
constexpr std::size_t kShortestInLine = 4;  // where it follows the last piece, whose place is 0
constexpr std::size_t kInLineIsWorth = 6;   // bytes that another piece must be longer by
constexpr std::int64_t kNone = -1;

void put(std::string& to, std::uint64_t number) {
    for (; number >= 128; number >>= 7) to += static_cast<char>(number | 128);
    to += static_cast<char>(number);
}

void put_signed(std::string& to, std::int64_t number) {
    put(to, number < 0 ? 2 * static_cast<std::uint64_t>(-number) + 1 : 2 * static_cast<std::uint64_t>(number));
}

// Takes a number from the front of `from`.
std::optional<std::uint64_t> get(std::string_view& from) {
    std::uint64_t number = 0;
    for (unsigned shift = 0; !from.empty() && shift < 63; shift += 7) {
        const auto byte = static_cast<unsigned char>(from.front());
        from.remove_prefix(1);
        number |= std::uint64_t{byte & 127u} << shift;
        if (byte < 128) return number;
    }
    return std::nullopt;
}

// Where bytes stood first.
class Places {
public:
    void add(std::string_view text, std::size_t at) {
        std::int64_t& place = table_[slot(text, at)];
        if (place == kNone) place = static_cast<std::int64_t>(at);
    }
    std::int64_t find(std::string_view text, std::size_t at) const { return table_[slot(text, at)]; }

private:
    static constexpr unsigned kBits = 17;
    static std::size_t slot(std::string_view text, std::size_t at) {
        std::uint64_t bytes = 0;
        std::memcpy(&bytes, text.data() + at, kHashed);
        return bytes * 0x9e3779b97f4a7c15u >> (64 - kBits);
    }
    std::vector<std::int64_t> table_ = std::vector<std::int64_t>(std::size_t{1} << kBits, kNone);
};

}  // namespace

std::string difference(std::string_view base, std::string_view image) {
    const std::string both = std::string(base) + std::string(image);
    Places in_base, in_image;
    for (std::size_t at = 0; at + kHashed <= base.size(); ++at) in_base.add(base, at);

    std::string steps, rest;
    std::size_t seen = 0, alone = 0;
    std::int64_t last = 0;
    for (std::size_t at = 0; at < image.size();) {
        for (; seen < at && seen + kHashed <= image.size(); ++seen) in_image.add(image, seen);
        const auto length_at = [&](std::int64_t from) {
            const auto end = static_cast<std::int64_t>(base.size() + at);
            if (from < 0 || from >= end) return std::size_t{0};
            std::size_t n = 0;
            while (at + n < image.size() && both[static_cast<std::size_t>(from) + n] == image[at + n]) ++n;
            return n;
        };
        const auto here = static_cast<std::int64_t>(at);
        std::int64_t best_from = last + here;
        std::size_t best = length_at(best_from);
        if (best < kShortestInLine) best = 0;
        if (at + kHashed <= image.size()) {
            const std::int64_t own = in_image.find(image, at);
            for (const std::int64_t from :
                 {in_base.find(image, at), own == kNone ? kNone : own + static_cast<std::int64_t>(base.size())}) {
                const std::size_t length = length_at(from);
                const std::size_t in_line = best_from == last + here && best > 0 ? kInLineIsWorth : 0;
                if (length >= kShortest && length > best + in_line) best = length, best_from = from;
            }
        }
        if (best == 0) {
            rest += image[at++];
            ++alone;
            continue;
        }
        put(steps, alone);
        put(steps, best);
        put_signed(steps, best_from - here - last);
        last = best_from - here;
        at += best;
        alone = 0;
    }
    put(steps, alone);
    std::string all;
    put(all, steps.size());
    return all + steps + rest;
}

std::optional<std::string> restored(std::string_view base, std::string_view difference, std::uint64_t bytes) {
    const std::optional<std::uint64_t> size = get(difference);
    if (!size || *size > difference.size()) return std::nullopt;
    std::string_view steps = difference.substr(0, *size), rest = difference.substr(*size);
    std::string image;
    std::int64_t last = 0;
    while (!steps.empty()) {
        const std::optional<std::uint64_t> alone = get(steps);
        if (!alone || *alone > rest.size()) return std::nullopt;
        image += rest.substr(0, *alone);
        rest.remove_prefix(*alone);
        if (steps.empty()) break;
        const std::optional<std::uint64_t> length = get(steps), further = get(steps);
        if (!length || !further || image.size() > bytes || *length > bytes - image.size()) return std::nullopt;
        const auto distance = static_cast<std::int64_t>(*further >> 1);
        last += (*further & 1) != 0 ? -distance : distance;
        const std::int64_t from = last + static_cast<std::int64_t>(image.size());
        if (from < 0 || from >= static_cast<std::int64_t>(base.size() + image.size())) return std::nullopt;
        // The piece may reach from the base into the image, and into itself.
        for (std::size_t at = static_cast<std::size_t>(from), left = *length; left > 0;) {
            const bool in_base = at < base.size();
            const std::size_t now = std::min(left, (in_base ? base.size() : base.size() + image.size()) - at);
            if (in_base)
                image.append(base, at, now);
            else
                image.append(image, at - base.size(), now);
            at += now;
            left -= now;
        }
    }
    if (image.size() != bytes || !rest.empty()) return std::nullopt;
    return image;
}

}  // namespace flashtile::gpu
