// share.h: which part of a long list of problems this process runs. FLASHTILE_TEST_EVERY=n takes every n-th: for
// sanitizers and emulators, where one takes 5 to 20 times as long. n+i starts at the i-th: the n processes from n+0 to
// n+(n-1) share the whole list.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

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

}  // namespace flashtile::conformance
