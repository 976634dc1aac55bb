// page_end.h: bytes that end where a page begins that may not be touched, so that a reader that goes a byte too far
// ends the test, in a build without sanitizers too.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace flashtile::tests {

class PageEnd {
public:
    explicit PageEnd(std::string_view bytes);
    PageEnd(const PageEnd&) = delete;
    PageEnd& operator=(const PageEnd&) = delete;
    ~PageEnd();

    std::span<const std::byte> bytes() const { return bytes_; }

private:
    std::span<std::byte> memory_;
    std::span<const std::byte> bytes_;
};

}  // namespace flashtile::tests
