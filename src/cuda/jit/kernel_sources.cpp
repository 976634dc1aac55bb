// kernel_sources.cpp: see kernel_sources.h.
#include "cuda/jit/kernel_sources.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/environment.h"
#include "core/error.h"

namespace flashtile::gpu {
namespace {

std::string read(const std::string& name, const std::string& includer, std::span<const EmbeddedSource> all) {
    const auto from = includer.empty() ? "" : ", which " + includer + " includes,";
    if (const std::string folder = environment("FLASHTILE_KERNEL_SOURCES"); !folder.empty()) {
        std::ifstream file(folder + "/" + name, std::ios::binary);
        if (!file)
            throw Error(FLASHTILE_INTERNAL, "the kernel source " + name + from +
                                                " is not in the folder of FLASHTILE_KERNEL_SOURCES, " + folder);
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
    }
    const auto found = std::ranges::find(all, name, &EmbeddedSource::name);
    if (found == all.end())
        throw Error(FLASHTILE_INTERNAL, "the kernel source " + name + from + " is not in this build");
    return std::string(found->text);
}

// The names in `#include "name"` lines.
std::vector<std::string> includes(const std::string& text) {
    constexpr std::string_view start = "#include \"";
    std::vector<std::string> names;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(start))
            names.push_back(line.substr(start.size(), line.find('"', start.size()) - start.size()));
    return names;
}

void add(const std::string& name, const std::string& includer, std::span<const EmbeddedSource> all,
         std::vector<SourceFile>& files) {
    if (std::ranges::find(files, name, &SourceFile::name) != files.end()) return;
    files.push_back({name, read(name, includer, all)});
    for (const std::string& next : includes(std::string(files.back().text))) add(next, name, all, files);
}

}  // namespace

std::vector<SourceFile> with_includes(const std::string& name, std::span<const EmbeddedSource> all) {
    std::vector<SourceFile> files;
    add(name, "", all, files);
    return files;
}

}  // namespace flashtile::gpu
