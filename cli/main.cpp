// main.cpp: the flashtile command line: its commands, the exit code and message of each failure, and signals.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <flashtile/flashtile.hpp>
#include <new>
#include <string>
#include <vector>

#include "commands.h"
#include "io/unfinished.h"

namespace {

constexpr const char* description = "flashtile: exact attention in linear memory";

constexpr const char* examples =
    R"(Examples:
  flashtile info                                               what runs here
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --causal
  flashtile verify --random=100 --seed=1                       random problems against an fp64 oracle
)"
#if defined(FLASHTILE_BENCH)
    R"(  flashtile bench --tokens=4096                                the paper's figures, scaled to a small machine
  flashtile io --seqlen=4096                                   what the papers' algorithms move between memories
)"
#endif
    R"(  flashtile tune --head-dim=128 --seqlen=4096 --causal         the best tiles of CUDA kernels on this GPU
  flashtile compile --arch=sm_80,sm_90a -o kernels.ftb         CUDA kernels ahead of time

`flashtile COMMAND --help` has more. Exit codes: 0 ok, 1 a wrong result, 2 usage or bad input.)";

int run(int argc, char** argv) {
    using namespace flashtile::cli;
    int exit_code = exit_ok;
    try {
        flashtile::io::remove_unfinished_on_signals();
        CLI::App app(description, "flashtile");
        app.footer(examples);
        app.set_version_flag("--version", flashtile::version());
        app.require_subcommand(1);
        add_info(app, exit_code);
        add_attend(app, exit_code);
        add_verify(app, exit_code);
#if defined(FLASHTILE_BENCH)
        add_bench(app, exit_code);
        add_io(app, exit_code);
#endif
        add_tune(app, exit_code);
        add_compile(app, exit_code);
        try {
            app.parse(argc, argv);
        } catch (const CLI::RequiredError& error) {
            if (argc < 2 || *argv[1] == '-' || !app.get_subcommands().empty()) return app.exit(error), exit_usage;
            std::vector<std::string> names;
            for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
            fmt::print(stderr, "flashtile: the command is '{}', allowed is {}\n", argv[1], fmt::join(names, ", "));
            return exit_usage;
        } catch (const CLI::ParseError& error) {
            return app.exit(error) == 0 ? exit_ok : exit_usage;  // --help comes this way too
        }
    } catch (const flashtile::out_of_memory& error) {
        fmt::print(stderr, "flashtile: {}\n", error.what());
        return exit_usage;
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "flashtile: out of memory\n");
        return exit_usage;
    } catch (const std::exception& error) {
        fmt::print(stderr, "flashtile: {}\n", error.what());
        return exit_usage;
    }
    return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    const int exit_code = run(argc, argv);
    // A report that did not fit on the disk must not pass for success.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
    fmt::print(stderr, "flashtile: standard output cannot be written\n");
    return flashtile::cli::exit_usage;
}
