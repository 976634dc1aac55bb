// faults.cpp: see faults.h. The handler runs on a stack of its own, since a CUDA thread's may be what has run out. When
// it returns, the launching thread goes on where it let the CUDA threads begin.
#include "emulator/driver/faults.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "emulator/driver/fiber.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/memory.h"

namespace emulator {
namespace {

struct sigaction segv_before, bus_before;

std::string what_happened(int signal, const siginfo_t& info) {
    if (grid().stacks().is_guard(info.si_addr)) return "uses more stack than it has";
    char address[32];
    std::snprintf(address, sizeof address, "%p", info.si_addr);
    if (signal == SIGBUS || info.si_code == SI_KERNEL)
        return "reads or writes at an address that is not aligned, or is none";
    return std::string("reads or writes at ") + address + ", " + place_of(info.si_addr);
}

void handle(int signal, siginfo_t* info, void* context) {
    void* host = grid().leave(what_happened(signal, *info));
    if (host == nullptr) {  // not a CUDA thread's: it faults again, and whoever was there before handles it
        ::sigaction(SIGSEGV, &segv_before, nullptr);
        ::sigaction(SIGBUS, &bus_before, nullptr);
        return;
    }
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    registers[REG_RSI] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(host));
    registers[REG_RIP] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(&emulator_resume));
}

}  // namespace

FaultsCaught::FaultsCaught() {
    static std::vector<char> memory(std::size_t{64} * 1024);
    const stack_t own = {.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
    ::sigaltstack(&own, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &segv_before);
    ::sigaction(SIGBUS, &action, &bus_before);
}

FaultsCaught::~FaultsCaught() {
    ::sigaction(SIGSEGV, &segv_before, nullptr);
    ::sigaction(SIGBUS, &bus_before, nullptr);
    ::sigaltstack(&stack_before_, nullptr);
}

}  // namespace emulator
