// memory.cpp: see memory.h.
#include "emulator/driver/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace emulator {
namespace {

constexpr std::size_t kPage = 4096, kAlignment = 256;
constexpr unsigned char kGuard = 0xA5;

struct Allocation {
    unsigned char* base;  // with the faulting pages before and after it
    std::size_t mapped, bytes;
};

struct Memory {
    std::mutex mutex;
    std::map<const unsigned char*, Allocation> all;
    std::size_t bytes = 0;
};
Memory& memory() {
    static auto* instance = new Memory;  // a library may free after static destructors
    return *instance;
}

std::size_t round_up(std::size_t n, std::size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

void* allocate(std::size_t bytes) {
    const std::lock_guard lock(memory().mutex);
    if (memory().bytes + bytes > kTotalMemory) return nullptr;
    const std::size_t aligned = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
    const std::size_t mapped = round_up(aligned, kPage) + 2 * kPage;
    void* fresh = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) return nullptr;
    auto* base = static_cast<unsigned char*>(fresh);
    ::mprotect(base, kPage, PROT_NONE);
    ::mprotect(base + mapped - kPage, kPage, PROT_NONE);
    unsigned char* address = base + mapped - kPage - aligned;
    std::memset(base + kPage, kGuard, static_cast<std::size_t>(address - base) - kPage);
    std::memset(address, 0xFF, bytes);
    std::memset(address + bytes, kGuard, aligned - bytes);
    memory().all[address] = {base, mapped, bytes};
    memory().bytes += bytes;
    return address;
}

std::string free(void* address) {
    const std::lock_guard lock(memory().mutex);
    const auto* own = static_cast<const unsigned char*>(address);
    const auto found = memory().all.find(own);
    if (found == memory().all.end()) return "what is freed is no allocation";
    const auto [base, mapped, bytes] = found->second;
    std::string wrong;
    const auto is_guard = [](unsigned char x) { return x == kGuard; };
    const unsigned char* end = base + mapped - kPage;
    if (!std::all_of(own + bytes, end, is_guard)) wrong = "bytes behind an allocation were written";
    if (!std::all_of(static_cast<const unsigned char*>(base) + kPage, own, is_guard))
        wrong = "bytes before an allocation were written";
    ::munmap(base, mapped);
    memory().bytes -= bytes;
    memory().all.erase(found);
    return wrong;
}

std::size_t allocated_bytes() {
    const std::lock_guard lock(memory().mutex);
    return memory().bytes;
}

bool is_allocated(const void* address, std::size_t bytes) {
    const std::lock_guard lock(memory().mutex);
    const auto* own = static_cast<const unsigned char*>(address);
    auto next = memory().all.upper_bound(own);
    if (next == memory().all.begin()) return false;
    const auto& [start, allocation] = *--next;
    return own + bytes <= start + allocation.bytes;
}

std::string place_of(const void* address) {
    const auto* own = static_cast<const unsigned char*>(address);
    for (const auto& [start, allocation] : memory().all) {
        if (own < allocation.base || own >= allocation.base + allocation.mapped) continue;
        return "byte " + std::to_string(own - start) + " of an allocation of " + std::to_string(allocation.bytes);
    }
    return "no allocation of the device";
}

}  // namespace emulator
