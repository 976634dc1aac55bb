// tuned_tiles_file.cpp: see tuned_tiles_file.h.
#include "cuda/tuned_tiles_file.h"

#include <sys/file.h>

#include <cstring>
#include <memory>
#include <sstream>

#include "cuda/jit/private_folder.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/whole_file.h"

namespace flashtile::gpu {
namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;

std::string header(std::string_view lines) {
    return "flashtile choices 1\n" + sha256(lines) + "\n";
}

TunedTileLines read_from(int folder) {
    const PrivateFile file = open_private_file(folder, kTunedTilesFile);
    if (!file.descriptor) return {{}, file.why_not};
    if (file.bytes > kMostBytes) return {{}, "is too large"};
    const std::string text = file.descriptor.read(file.bytes, 0);
    const std::size_t start = header("").size();
    if (text.size() < start || !text.starts_with(header(std::string_view(text).substr(start))))
        return {{}, "is damaged"};
    TunedTileLines result;
    std::istringstream lines(text.substr(start));
    for (std::string line; std::getline(lines, line);) result.lines.push_back(line);
    return result;
}

}  // namespace

TunedTileLines read_tuned_tiles(const std::filesystem::path& folder) {
    const PrivateFolder opened = open_private_folder(folder);
    if (opened.descriptor) return read_from(opened.descriptor.get());
    std::error_code error;
    const bool there = std::filesystem::exists(folder / kTunedTilesFile, error);
    return {{}, there ? "its folder is not used: " + opened.why_not : ""};
}

std::string edit_tuned_tiles(const std::filesystem::path& folder,
                             const std::function<void(std::vector<std::string>& lines)>& edit) {
    make_private_folder(folder);
    const PrivateFolder opened = open_private_folder(folder);
    if (!opened.descriptor) return opened.why_not;
    const int descriptor = opened.descriptor.get();
    if (::flock(descriptor, LOCK_EX) != 0) return std::strerror(errno);
    // A child forked meanwhile holds the descriptor too, so that closing ours would not end the lock.
    const auto unlock = [](const int* locked) { ::flock(*locked, LOCK_UN); };
    const std::unique_ptr<const int, decltype(unlock)> locked(&descriptor, unlock);
    std::vector<std::string> lines = read_from(descriptor).lines;
    edit(lines);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return write_whole(descriptor, kTunedTilesFile, {header(text), text}, 0600);
}

}  // namespace flashtile::gpu
