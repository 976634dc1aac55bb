// whole_file.h: writing a file that appears whole or not at all, whatever happens meanwhile: it is written under a
// temporary name, brought to the disk and renamed. What a killed process left behind is told from what a living one
// writes by a lock that ends with the process.
#pragma once

#include <string>
#include <string_view>

namespace flashtile::gpu {

// Writes `parts`, one after another, as `name` in the folder that `folder` is an open descriptor of, readable by
// `mode`.
// "" where it worked, else the reason; then nothing is left behind.
std::string write_whole(int folder, const std::string& name, std::initializer_list<std::string_view> parts,
                        unsigned mode);

// Removes the temporary files of processes that are no more.
void remove_leftovers(int folder);

}  // namespace flashtile::gpu
