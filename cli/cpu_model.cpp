// cpu_model.cpp: see cpu_model.h.
#include "cpu_model.h"

#include <sys/utsname.h>

#include <fstream>

namespace flashtile::cli {

std::string cpuinfo(const std::string& name) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name))
            if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
    return "";
}

std::string cpu_model() {
    std::string model = cpuinfo("model name");
    if (!model.empty()) return model;
    utsname system{};
    uname(&system);
    return system.machine;
}

}  // namespace flashtile::cli
