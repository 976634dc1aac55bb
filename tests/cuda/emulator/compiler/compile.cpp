// compile.cpp: see compile.h. The compiler is EMULATOR_COMPILER, as the build found it, unless
// FLASHTILE_EMULATOR_COMPILER names another; FLASHTILE_EMULATOR_FLAGS are added to its flags.
#include "emulator/compiler/compile.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "emulator/compiler/rewrite.h"
#include "emulator/image.h"

namespace emulator {
namespace {

namespace fs = std::filesystem;

// Arithmetic stays as it is written, and shared memory may be read as any type. The kernels are tests' own business:
// NVRTC has said what is to say about them.
constexpr const char* kFlags =
    "-std=c++20 -O1 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing "
    "-fno-exceptions -fno-rtti -fPIC -fvisibility=hidden -shared -w -include emulator/prelude.h";

std::string setting(const char* name, const char* standard) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : standard;
}

std::vector<std::string> command() {
    std::istringstream words(setting("FLASHTILE_EMULATOR_COMPILER", EMULATOR_COMPILER) + " " + kFlags + " " +
                             setting("FLASHTILE_EMULATOR_FLAGS", ""));
    return {std::istream_iterator<std::string>(words), {}};
}

class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (fs::temp_directory_path() / "flashtile-emulator-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the folder " + name);
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code error;
        if (std::getenv("FLASHTILE_EMULATOR_KEEP") == nullptr) fs::remove_all(path_, error);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const fs::path& path() const { return path_; }
    void write(const File& file) const {
        fs::create_directories((path_ / file.name).parent_path());
        std::ofstream(path_ / file.name) << file.text;
    }
    std::string read(const char* name) const {
        std::ostringstream text;
        text << std::ifstream(path_ / name, std::ios::binary).rdbuf();
        return text.str();
    }

private:
    fs::path path_;
};

// Runs a command with its output in a file; returns whether it succeeded.
bool run(const std::vector<std::string>& words, const fs::path& output) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    // What the tests' own process was preloaded with is none of the compiler's business.
    std::vector<char*> environment;
    for (char** one = environ; *one != nullptr; ++one)
        if (std::strncmp(*one, "LD_PRELOAD=", 11) != 0) environment.push_back(*one);
    environment.push_back(nullptr);
    pid_t child = 0;
    const int failed = ::posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&files);
    int status = -1;
    if (failed == 0) ::waitpid(child, &status, 0);
    return failed == 0 && status == 0;
}

}  // namespace

bool compile(const Program& program, const std::vector<std::string>& options, std::string& object,
             std::string& log) try {
    const TemporaryFolder folder;
    for (const File& file : rewritten(program)) folder.write(file);
    std::vector<std::string> words = command();
    for (const std::string& option : options)
        if (const std::string macro = architecture_macro(option); !macro.empty()) words.push_back("-D" + macro);
    const fs::path made = folder.path() / "kernel.so", said = folder.path() / "said";
    words.insert(words.end(), {"-I", folder.path().string(), "-x", "c++", (folder.path() / program.main.name).string(),
                               "-o", made.string()});
    const bool done = run(words, said);
    log = folder.read("said");
    if (!done && log.empty()) log = "cannot run " + words.front();
    object = done ? folder.read("kernel.so") : "";
    return done;
} catch (const std::exception& e) {
    log = e.what();
    return false;
}

std::uint64_t fingerprint() {
    std::string all;
    for (const std::string& word : command()) all += word + "\n";
    for (const File& file : own_files()) all += file.name + "\n" + file.text;
    return sum_of(all);
}

}  // namespace emulator
