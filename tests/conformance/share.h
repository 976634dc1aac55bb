// share.h: which part of a long list of problems this process runs. FLASHTILE_TEST_EVERY=n takes every n-th: for
// sanitizers and emulators, where one takes 5 to 20 times as long. n+i starts at the i-th: the n processes from n+0 to
// n+(n-1) share the whole list.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace flashtile::conformance {

struct Share {
    std::size_t every = 1, first = 0;
    bool has(std::size_t index) const { return index % every == first; }
};

inline Share share_of_list() {
    const char* text = std::getenv("FLASHTILE_TEST_EVERY");
    if (text == nullptr) return {};
    const std::string value = text;
    const std::size_t plus = value.find('+');
    return {std::stoul(value), plus == std::string::npos ? 0 : std::stoul(value.substr(plus + 1))};
}

// Whether FLASHTILE_TEST_NAMES, words separated by commas, lets a case of this name be judged: one of them is in it, or
// with a minus before the first, none of them is.
inline bool is_asked_for(std::string_view name) {
    const char* const words = std::getenv("FLASHTILE_TEST_NAMES");
    if (words == nullptr) return true;
    std::string_view rest = words;
    const bool wanted = !rest.starts_with('-');
    if (!wanted) rest.remove_prefix(1);
    while (true) {
        const std::size_t comma = rest.find(',');
        if (name.find(rest.substr(0, comma)) != name.npos) return wanted;
        if (comma == rest.npos) return !wanted;
        rest.remove_prefix(comma + 1);
    }
}

}  // namespace flashtile::conformance
