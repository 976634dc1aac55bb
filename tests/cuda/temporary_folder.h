// temporary_folder.h: a folder of a test's own, gone with it; and a variable of the environment for a while.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace flashtile::gpu {

class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);  // makes its folders

class Environment {
public:
    Environment(const char* name, const std::string& value);  // "": unset
    ~Environment();
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace flashtile::gpu
