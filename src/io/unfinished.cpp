// unfinished.cpp: see unfinished.h.
#include "io/unfinished.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <random>

#include "io/array.h"

namespace flashtile::io {
namespace {

// What a signal handler may look at: names of files, none of which it allocates or frees.
std::array<std::atomic<const char*>, 16> unfinished{};
static_assert(std::atomic<const char*>::is_always_lock_free);

void remove_all() {
    for (const auto& slot : unfinished)
        if (const char* path = slot.load()) ::unlink(path);
}

void end_by(int signal) {
    remove_all();
    // The handler is installed for once: the second time the signal has its usual effect, and the parent sees it.
    ::raise(signal);
}

void end_by_bus_error(int) {
    remove_all();
    constexpr char message[] = "flashtile: a mapped file was cut short, or its disk failed, while it was in use\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, message, sizeof message - 1);
    ::_exit(2);
}

std::size_t remember(const char* path) {
    for (std::size_t n = 0; n < unfinished.size(); ++n) {
        const char* none = nullptr;
        if (unfinished[n].compare_exchange_strong(none, path)) return n;
    }
    throw FileError(fmt::format("{}: more than {} files are being written", path, unfinished.size()));
}

}  // namespace

Unfinished::Unfinished(const std::filesystem::path& folder) {
    std::random_device random;
    path_ = (folder / fmt::format(".flashtile-{:08x}{:08x}.part", random(), random())).string();
    slot_ = remember(path_.c_str());  // before there is a file: no signal can come between
}

Unfinished::~Unfinished() {
    ::unlink(path_.c_str());
    unfinished[slot_].store(nullptr);
}

void remove_unfinished_on_signals() {
    const auto install = [](int signal, void (*handler)(int)) {
        struct sigaction before {};
        ::sigaction(signal, nullptr, &before);
        if (before.sa_handler == SIG_IGN) return;  // as nohup leaves it
        struct sigaction action {};
        action.sa_handler = handler;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(signal, &action, nullptr);
    };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) install(signal, end_by);
    install(SIGBUS, end_by_bus_error);
    ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace flashtile::io
