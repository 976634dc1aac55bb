// tile_permission_test.cpp: a process that may not use AMX's tiles computes without them. A filter of system calls
// makes Linux refuse them, and a variable makes tests/tile_model refuse them. Each runs in a process of its own, since
// a process asks once.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "unit/call.h"

namespace flashtile::unit {
namespace {

void refuse_tiles() {
    constexpr unsigned request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, request_permission, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        std::exit(3);
    setenv("FLASHTILE_TILE_MODEL", "refused", 1);
}

// Says what went wrong, or nothing.
std::string run_without_tiles() {
    if (isa_available(isa::amx)) return "amx is available";
    if (*isa_why_not(isa::amx) == '\0') return "no reason is given";
    conformance::Case c;
    c.type = bf16;
    c.seqlen_q = c.seqlen_k = 100;
    Call call(c);
    if (call.forward() != FLASHTILE_OK || call.backward() != FLASHTILE_OK) return flashtile_last_error();
    if (std::strstr(last_run(), "amx") != nullptr) return last_run();
    call.options.isa = FLASHTILE_ISA_AMX;
    if (call.forward() != FLASHTILE_UNSUPPORTED) return "a call that forces amx was not refused";
    return "";
}

TEST(TilePermissionDeathTest, ARefusalFallsBack) {
    if (std::getenv("FLASHTILE_ISA") != nullptr) GTEST_SKIP() << "FLASHTILE_ISA leaves no choice";
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // which starts this program anew
    EXPECT_EXIT(
        {
            refuse_tiles();
            const std::string wrong = run_without_tiles();
            std::fprintf(stderr, "%s\n", wrong.c_str());
            std::exit(wrong.empty() ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace flashtile::unit
