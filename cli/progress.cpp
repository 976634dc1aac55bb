// progress.cpp: see progress.h.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

namespace flashtile::cli {

// Work that ends within the first interval shows nothing.
class Progress::Line {
public:
    explicit Line(const std::string& what) : thread_([what](const std::stop_token& stop) { show(what, stop); }) {}

private:
    static void show(const std::string& what, const std::stop_token& stop) {
        constexpr auto interval = std::chrono::milliseconds(500);
        const auto start = std::chrono::steady_clock::now();
        std::mutex mutex;
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex);
        bool shown = false;
        while (!stopped.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) {
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            fmt::print(stderr, "\r{}: {:.1f} s\x1b[K", what, time.count());
            std::fflush(stderr);
            shown = true;
        }
        if (shown) fmt::print(stderr, "\r\x1b[K");
    }

    std::jthread thread_;
};

Progress::Progress(const std::string& what) {
    if (::isatty(STDERR_FILENO) != 0) line_ = std::make_unique<Line>(what);
}

Progress::~Progress() = default;

}  // namespace flashtile::cli
