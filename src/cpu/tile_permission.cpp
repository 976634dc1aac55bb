// tile_permission.cpp: see tile_permission.h. (__builtin_cpu_supports("amx-bf16") is true before permission is given,
// and the first instruction on a tile would then raise SIGILL.)
#include "cpu/tile_permission.h"

#include <cerrno>
#include <cstdint>
#include <system_error>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/per_process.h"

namespace flashtile::cpu {
namespace {

std::string find_out() {
#if defined(__x86_64__) && defined(__linux__)
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned bf16 = 1U << 22, tile = 1U << 24;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & bf16) == 0 || (edx & tile) == 0)
        return "the CPU has no amx_tile and amx_bf16";
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0)
        return "the CPU has AMX, but the operating system does not save extended state";
    constexpr std::uint32_t tile_state = 0x60000;  // configuration and data
    std::uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & tile_state) != tile_state)
        return "the CPU has AMX, but the operating system does not save the state of tiles";
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0)
        return "the CPU has AMX, but the operating system refuses it: " + std::generic_category().message(errno);
    return "";
#else
    return "only x86-64 on Linux has AMX";
#endif
}

struct Answer {
    std::string why_not = find_out();
};
constinit PerProcess<Answer> answer;

}  // namespace

const std::string& why_no_tiles() {
    return answer.get().why_not;
}

}  // namespace flashtile::cpu
