// fiber.h: stacks to run CUDA threads on, and the switch between them.
#pragma once

#include <cstddef>
#include <vector>

namespace emulator {

// Saves where the caller is to *from, and goes on where `to` was saved. x86-64 only.
extern "C" void emulator_switch(void** from, void* to);
// Where the second half of emulator_switch begins, with `to` in rsi.
extern "C" const char emulator_resume[];

// Stacks that are used again, with a page that faults below each.
class Stacks {
public:
    // Where to go on to call body(argument) on the n-th stack. It must not return.
    void* start(std::size_t n, void (*body)(void*), void* argument);

    // Whether an address is in the page that faults.
    bool is_guard(const void* address) const;

private:
    std::vector<unsigned char*> stacks_;
};

}  // namespace emulator
