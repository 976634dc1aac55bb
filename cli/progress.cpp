// progress.cpp: see progress.h.
#include "progress.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "status_line.h"

namespace flashtile::cli {

// Shows the line twice a second, from half a second on: short work shows nothing unless it says so.
class Progress::Line {
public:
    explicit Line(std::string what)
        : what_(std::move(what)), thread_([this](const std::stop_token& stop) { keep_showing(stop); }) {}

    void say(const std::string& what) {
        const std::lock_guard lock(mutex_);
        what_ = what;
        show();
    }

private:
    void keep_showing(const std::stop_token& stop) {
        constexpr auto interval = std::chrono::milliseconds(500);
        std::unique_lock lock(mutex_);
        while (!stopped_.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) show();
    }

    // With the mutex held.
    void show() {
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
        line_.say(fmt::format("{}: {:.1f} s", what_, time.count()));
    }

    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::mutex mutex_;  // of what follows
    std::string what_;
    StatusLine line_;
    std::condition_variable_any stopped_;
    std::jthread thread_;
};

Progress::Progress(const std::string& what) {
    if (StatusLine::on_terminal()) line_ = std::make_unique<Line>(what);
}

void Progress::say(const std::string& what) {
    if (line_) line_->say(what);
}

Progress::~Progress() = default;

}  // namespace flashtile::cli
