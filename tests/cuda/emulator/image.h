// image.h: what the emulated NVRTC makes and the emulated driver loads: a shared object behind a header that says how
// long it is, since the driver is given nothing but an address.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace emulator {

struct ImageHeader {
    char magic[16];
    std::uint64_t bytes, sum;
};
inline constexpr char kMagic[16] = "emulated kernel";

inline std::uint64_t sum_of(std::string_view text) {  // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
}

inline std::string image_of(std::string_view object) {
    ImageHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.bytes = object.size();
    header.sum = sum_of(object);
    return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(object);
}

// The shared object of an image; empty if it is none, or damaged.
inline std::string_view object_of(const void* image) {
    ImageHeader header;
    if (std::memcmp(image, kMagic, sizeof kMagic) != 0) return {};
    std::memcpy(&header, image, sizeof header);
    const std::string_view object(static_cast<const char*>(image) + sizeof header, header.bytes);
    return sum_of(object) == header.sum ? object : std::string_view{};
}

}  // namespace emulator
