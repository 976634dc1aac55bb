// faults.h: a kernel that reads or writes where nothing is ends its launch with an error, as on a GPU.
#pragma once

#include <csignal>

namespace emulator {

// While it lives, faults of CUDA threads are caught.
class FaultsCaught {
public:
    FaultsCaught();
    ~FaultsCaught();
    FaultsCaught(const FaultsCaught&) = delete;
    FaultsCaught& operator=(const FaultsCaught&) = delete;

private:
    stack_t stack_before_;
};

}  // namespace emulator
