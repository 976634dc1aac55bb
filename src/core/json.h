// json.h: JSON as the library writes it, which has no library for it: text, numbers, objects and lists, on one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashtile {

inline std::string json(std::string_view text) {
    std::string quoted = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            quoted += {'\\', c};
        else if (byte < 0x20)
            quoted += std::string("\\u00") + "0123456789abcdef"[byte / 16] + "0123456789abcdef"[byte % 16];
        else
            quoted += c;
    }
    return quoted + "\"";
}
inline std::string json(const std::string& text) {
    return json(std::string_view(text));
}
inline std::string json(const char* text) {
    return json(std::string_view(text));
}
inline std::string json(bool value) {
    return value ? "true" : "false";
}
inline std::string json(std::uint64_t value) {
    return std::to_string(value);
}
inline std::string json(std::int64_t value) {
    return std::to_string(value);
}
inline std::string json(int value) {
    return std::to_string(value);
}

// A JSON object or list, one member after another.
class Members {
public:
    template <class Value>
    Members& add(const char* name, const Value& value) {
        return raw(json(name) + ": " + json(value));
    }
    Members& add(const char* name, const Members& list, const char* brackets) {
        return raw(json(name) + ": " + list.in(brackets));
    }
    Members& raw(const std::string& member) {
        text_ += (text_.empty() ? "" : ", ") + member;
        return *this;
    }
    std::string in(const char* brackets) const { return brackets[0] + text_ + brackets[1]; }

private:
    std::string text_;
};

}  // namespace flashtile
