// memory.cpp: see memory.h.
#include "bench/memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "bench/method.h"

namespace flashtile::cli::bench {
namespace {

// A field of /proc/self/status in KiB.
double status_kib(const std::string& field) {
    std::ifstream file("/proc/self/status");
    std::string name;
    while (file >> name) {
        double kib = 0.0;
        if (name == field && file >> kib) return kib;
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0.0;
}

void run_once(Method& method, const Point& point) {
    const Inputs inputs = random_inputs(point);
    method.prepare(point, inputs);
    method.run(1);
    method.release();
}

double extra_mib(Method& method, const Point& point) {
    Point tiny = point;
    tiny.batch = 1;
    tiny.seqlen = 64;
    run_once(method, tiny);

    const Inputs inputs = random_inputs(point);
    method.prepare(point, inputs);
    // The kernel forgets the peak so far. Where that is not allowed the peak is what is resident now, or little more.
    std::ofstream("/proc/self/clear_refs") << "5\n";
    const double before = status_kib("VmRSS:");
    method.run(1);
    return (status_kib("VmHWM:") - before) / 1024.0;
}

template <class MakeMethod>
std::optional<double> in_child(const Point& point, MakeMethod make) {
    int channel[2];
    if (pipe(channel) != 0) return std::nullopt;
    const pid_t child = fork();
    if (child == 0) {
        try {
            const std::unique_ptr<Method> method = make();
            const double mib = extra_mib(*method, point);
            _exit(write(channel[1], &mib, sizeof mib) == sizeof mib ? EXIT_SUCCESS : EXIT_FAILURE);
        } catch (const std::exception&) {
            _exit(EXIT_FAILURE);
        }
    }
    close(channel[1]);
    double mib = 0.0;
    const bool told = read(channel[0], &mib, sizeof mib) == sizeof mib;
    close(channel[0]);
    if (child > 0) waitpid(child, nullptr, 0);
    return told ? std::optional(mib) : std::nullopt;
}

}  // namespace

MemoryRow measure_memory(const Point& point, flashtile::isa isa, const std::vector<std::string>& others) {
    const bool fits = make_standard()->why_not(point).empty();
    MemoryRow row{point,
                  {{"flashtile", in_child(point, [&] { return make_flashtile(isa); })},
                   {"standard", fits ? in_child(point, make_standard) : std::nullopt}}};
    for (const std::string& name : others)
        row.mib.emplace_back(name, in_child(point, [&] { return make_other(name); }));
    return row;
}

}  // namespace flashtile::cli::bench
