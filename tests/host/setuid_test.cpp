// setuid_test.cpp: a program that runs with more rights than its caller takes nothing from the caller's environment.
// The program starts itself twice: as it is, and as a copy that gets another group's rights (the group's and not the
// user's, so that root's child may still open a library in a folder that is closed to others). Exit code 77: cannot be
// tried.
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <string>

namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4093, kSkipped = 77, kObeys = 3, kIgnores = 4;
constexpr gid_t kNoGroup = 65534;

int ending_of(const fs::path& program) {
    const pid_t child = fork();
    if (child == 0) {
        execl(program.c_str(), program.c_str(), "child", static_cast<char*>(nullptr));
        _exit(1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int count, char**) {
    const bool obeys = flashtile::get_threads() == kThreads;
    // At once, as a leak checker may not look into a program with such rights and would fail it.
    if (count > 1) _exit(obeys ? kObeys : (getauxval(AT_SECURE) != 0 ? kIgnores : kSkipped));

    setenv("FLASHTILE_THREADS", std::to_string(kThreads).c_str(), 1);
    const fs::path self = fs::read_symlink("/proc/self/exe");
    if (ending_of(self) != kObeys) return std::puts("the environment is ignored by every program"), 1;
    if (geteuid() != 0) return std::puts("only root can make a program of another group's"), kSkipped;
    const fs::path copy = fs::temp_directory_path() / ("flashtile-setuid-" + std::to_string(getpid()));
    fs::copy_file(self, copy);
    const bool made = chown(copy.c_str(), geteuid(), kNoGroup) == 0 && chmod(copy.c_str(), S_ISGID | 0755) == 0;
    const int ending = made ? ending_of(copy) : kSkipped;
    fs::remove(copy);
    if (ending == kObeys) std::puts("the environment is obeyed by a setuid program");
    if (ending != kIgnores) std::printf("the copy ended with %d\n", ending);
    return ending == kIgnores ? 0 : ending;
}
