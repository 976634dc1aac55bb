// compiler_report.h: what ptxas says of a kernel in NVRTC's log.
#pragma once

#include <string>
#include <vector>

namespace flashtile::gpu {

struct CompilerReport {
    int registers = 0;  // 0: the log says nothing, as of code that the driver finishes
    int stack_bytes = 0;
    int spill_bytes = 0;                // stored and loaded
    std::vector<std::string> warnings;  // lines with a warning or a C75xx remark (serialised wgmma), whole

    bool clean() const { return registers > 0 && spill_bytes == 0 && warnings.empty(); }
};

CompilerReport read_report(const std::string& log);

}  // namespace flashtile::gpu
