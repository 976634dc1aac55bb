// whole_file.cpp: see whole_file.h.
#include "cuda/jit/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "cuda/jit/descriptor.h"
#include "cuda/jit/private_folder.h"

namespace flashtile::gpu {
namespace {

constexpr std::string_view kStart = ".flashtile-";
constexpr std::string_view kEnd = ".part";

std::string temporary_name() {
    std::random_device random;
    return std::string(kStart) + std::to_string(random()) + std::to_string(random()) + std::string(kEnd);
}

// A new file under a temporary name, locked; where it is not open, errno says why not. One that remove_leftovers of
// another process met before it was locked has lost its name, or will: then another takes its place.
Descriptor make_locked(int folder, unsigned mode, std::string& name) {
    for (;;) {
        name = temporary_name();
        Descriptor file(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
        if (!file) return file;
        struct stat status {};
        const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
        if (!locked && errno != EWOULDBLOCK) {
            const int reason = errno;
            ::unlinkat(folder, name.c_str(), 0);
            errno = reason;
            return {};
        }
        if (locked && ::fstat(file.get(), &status) == 0 && status.st_nlink > 0) return file;
    }
}

// A write past this limit would end the process with SIGXFSZ, which is not a library's to do.
bool allowed(std::size_t bytes) {
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

}  // namespace

std::string write_whole(int folder, const std::string& name, std::initializer_list<std::string_view> parts,
                        unsigned mode) {
    std::size_t bytes = 0;
    for (const std::string_view part : parts) bytes += part.size();
    if (!allowed(bytes)) return std::strerror(EFBIG);
    std::string temporary;
    const Descriptor file = make_locked(folder, mode, temporary);
    if (!file) return std::strerror(errno);
    bool good = true;
    for (const std::string_view part : parts) good = good && file.write(part);
    good = good && ::fsync(file.get()) == 0 && ::renameat(folder, temporary.c_str(), folder, name.c_str()) == 0;
    if (good) return "";
    std::string reason = std::strerror(errno);
    ::unlinkat(folder, temporary.c_str(), 0);
    return reason;
}

void remove_leftovers(int folder) {
    for (const std::string& name : names_in(folder)) {
        if (!name.starts_with(kStart) || !name.ends_with(kEnd)) continue;
        const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(folder, name.c_str(), 0);
    }
}

}  // namespace flashtile::gpu
