// fiber.cpp: see fiber.h.
#include "emulator/driver/fiber.h"

#include <sys/mman.h>

#include <new>

// The registers that a function must keep go onto the stack, and the stacks change places.
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.globl emulator_resume
.hidden emulator_resume
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
emulator_resume:
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, . - emulator_switch

.globl emulator_begin
.hidden emulator_begin
.type emulator_begin, @function
emulator_begin:
    movq %rbx, %rdi
    callq *%r12
    ud2
.size emulator_begin, . - emulator_begin
)");

extern "C" void emulator_begin();

namespace emulator {
namespace {

constexpr std::size_t kStack = 124 * 1024, kPage = 4096;

}  // namespace

void* Stacks::start(std::size_t n, void (*body)(void*), void* argument) {
    while (stacks_.size() <= n) {
        void* fresh =
            ::mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fresh == MAP_FAILED) throw std::bad_alloc();
        ::mprotect(fresh, kPage, PROT_NONE);
        stacks_.push_back(static_cast<unsigned char*>(fresh));
    }
    // Neighbours begin at different places of a page, so that they do not share the same lines of the cache.
    void** top = reinterpret_cast<void**>(stacks_[n] + kPage + kStack - 64 - n % 32 * 576);
    *--top = reinterpret_cast<void*>(&emulator_begin);  // which then finds the stack aligned for its call
    *--top = nullptr;                                   // rbp
    *--top = argument;                                  // rbx
    *--top = reinterpret_cast<void*>(body);             // r12
    for (int rest = 0; rest < 3; ++rest) *--top = nullptr;
    return top;
}

bool Stacks::is_guard(const void* address) const {
    for (const unsigned char* stack : stacks_)
        if (address >= stack && address < stack + kPage) return true;
    return false;
}

}  // namespace emulator
