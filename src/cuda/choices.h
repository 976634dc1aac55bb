// choices.h: the choices of this process: those of the file "choices" in the cache's folder, read once, and those that
// it was given. FLASHTILE_NO_CHOICES in the environment leaves the file unread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/choice.h"
#include "cuda/device.h"

namespace flashtile::gpu {

// Those for a device and this version of the library; none where there is no NVRTC, since a bundle has the tables'
// tiles. What is returned stays valid, and a further call is one load.
Choices choices_for(const Device& device);
std::vector<Choice> choices_on(const DeviceFacts& device);

// A choice as to_text() makes it, in place of an earlier one with its subject; `keep`: in the file too. Throws
// INVALID_ARGUMENT where the text is none or the file cannot be written.
void use_choice(std::string_view text, bool keep);

// From here on this process has none; `kept`: nor has the file. Throws as use_choice().
void forget_choices(bool kept);

struct ChoicesState {
    std::filesystem::path file;
    std::string why_not;          // why the file is not used, or ""
    std::vector<Choice> choices;  // of this process, for whichever device and version
};
ChoicesState choices_state();

}  // namespace flashtile::gpu
