// fake_image.h: what the fake NVRTC makes and the fake driver takes: a text with its own sum, so that the driver
// refuses an image of which one bit was changed or whose end is missing, as long as its zero byte is there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fake {

inline std::uint64_t sum(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
}

inline std::string image_of(std::string_view program) {
    return "FAKE " + std::to_string(sum(program)) + "\n" + std::string(program);
}

inline bool is_image(std::string_view text) {
    const std::size_t line = text.find('\n');
    return line != std::string_view::npos && image_of(text.substr(line + 1)) == text;
}

}  // namespace fake
