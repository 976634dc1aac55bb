// output_file.cpp: see output_file.h.
#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "io/array.h"

namespace flashtile::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what, int error) {
    throw FileError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

// Where the file will really lie: renaming over a symbolic link would replace the link, over a device the device.
fs::path resolve(const fs::path& path) {
    std::error_code error, no_link;
    fs::path real = fs::weakly_canonical(fs::absolute(path), error);
    // A link to a file that is not there yet stays as it is.
    while (!error && fs::is_symlink(real, no_link))
        real = fs::weakly_canonical(real.parent_path() / fs::read_symlink(real, no_link), error);
    if (error) throw FileError(fmt::format("{}: {}", path.string(), error.message()));
    const auto status = fs::status(real, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
        throw FileError(fmt::format("{}: exists and is not a regular file", path.string()));
    return real;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path, std::size_t bytes)
    : path_(resolve(path)), temporary_(path_.parent_path()) {
    // Give it the permissions of the file that it replaces.
    struct stat replaced {};
    const bool replaces = ::stat(path_.c_str(), &replaced) == 0;
    const mode_t mode = replaces ? replaced.st_mode & 0777 : 0666;
    descriptor_ = ::open(temporary_.path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0) fail(path, "cannot be written in its folder", errno);
    try {
        if (replaces && ::fchmod(descriptor_, mode) != 0) fail(path, "cannot keep its mode", errno);
        const int error = bytes != 0 ? ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes)) : 0;
        if (error != 0) fail(path, fmt::format("no room for {} bytes", bytes), error);
        void* memory =
            bytes != 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0) : nullptr;
        if (memory == MAP_FAILED) fail(path, "cannot be mapped", errno);
        bytes_ = {static_cast<std::byte*>(memory), bytes};
    } catch (...) {
        close();
        throw;
    }
}

OutputFile::~OutputFile() {
    close();
}

void OutputFile::close() noexcept {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    bytes_ = {};
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void OutputFile::flush() {
    if (!bytes_.empty() && ::msync(bytes_.data(), bytes_.size(), MS_SYNC) != 0) fail(path_, "cannot be written", errno);
    if (::fsync(descriptor_) != 0) fail(path_, "cannot be written", errno);
}

void OutputFile::commit() {
    close();
    if (::rename(temporary_.path().c_str(), path_.c_str()) != 0) fail(path_, "cannot be given its name", errno);
    // The new name is durable once its folder is on the disk; where that cannot be had, the file is whole all the same.
    const int folder = ::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    ::fsync(folder);
    ::close(folder);
}

}  // namespace flashtile::io
