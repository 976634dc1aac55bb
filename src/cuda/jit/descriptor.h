// descriptor.h: an open file that closes itself, and reading and writing it whole.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace flashtile::gpu {

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }

    explicit operator bool() const { return number_ >= 0; }
    int get() const { return number_; }

    // Fewer bytes than asked for where the file ends or cannot be read.
    std::string read(std::size_t bytes, off_t from) const {
        std::string text(bytes, '\0');
        std::size_t done = 0;
        while (done < bytes) {
            const ssize_t got = ::pread(number_, text.data() + done, bytes - done, from + static_cast<off_t>(done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            done += static_cast<std::size_t>(got);
        }
        text.resize(done);
        return text;
    }

    // False, and errno, where the disk is full or fails.
    bool write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t put = ::write(number_, text.data(), text.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return false;
            text.remove_prefix(static_cast<std::size_t>(put));
        }
        return true;
    }

private:
    int number_ = -1;
};

}  // namespace flashtile::gpu
