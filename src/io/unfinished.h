// unfinished.h: temporary files that must not outlive the process, whether it ends by an exception or by a signal.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace flashtile::io {

// The name of a temporary file in `folder`, that nobody else uses. The destructor removes the file, unless it was
// renamed before.
class Unfinished {
public:
    explicit Unfinished(const std::filesystem::path& folder);
    Unfinished(const Unfinished&) = delete;
    Unfinished& operator=(const Unfinished&) = delete;
    ~Unfinished();

    const std::string& path() const { return path_; }

private:
    std::string path_;
    std::size_t slot_ = 0;
};

// From this call on SIGINT, SIGTERM and SIGHUP remove unfinished files before they end the process, and so does SIGBUS,
// which comes when a mapped input is cut short while it is read. SIGXFSZ becomes an ordinary error. For main().
void remove_unfinished_on_signals();

}  // namespace flashtile::io
