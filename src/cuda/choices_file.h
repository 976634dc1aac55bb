// choices_file.h: the file of choices: a line "flashtile choices 1", a line with the SHA-256 of the rest, and a line
// for each choice. Like the kernels beside it, it is private to the user, written whole or not at all, and used only
// where it is whole and nobody else could have written it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace flashtile::gpu {

inline constexpr const char* kChoicesFile = "choices";

struct ChoiceLines {
    std::vector<std::string> lines;
    std::string why_not;  // why the file is not used, or ""; a file that is not there holds nothing
};
ChoiceLines read_choices(const std::filesystem::path& folder);

// Has `edit` change the lines, one process at a time. What cannot be used is replaced. "" where it worked, else the
// reason.
std::string edit_choices(const std::filesystem::path& folder,
                         const std::function<void(std::vector<std::string>& lines)>& edit);

}  // namespace flashtile::gpu
