// mapped_file.cpp: see mapped_file.h.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/array.h"

namespace flashtile::io {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
    throw FileError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: without it, opening a pipe that nobody writes to would block.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) fail(path, "cannot be opened", errno);
    struct stat status {};
    const bool known = ::fstat(descriptor, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
        ::close(descriptor);
        throw FileError(fmt::format("{}: not a regular file, so it cannot be mapped", path.string()));
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* memory = size != 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
    const int error = errno;
    ::close(descriptor);
    if (memory == MAP_FAILED) fail(path, "cannot be mapped", error);
    bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace flashtile::io
