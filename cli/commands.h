// commands.h: the subcommands of the flashtile command line. Each `add_*` adds one to the app with its help and its
// callback; a callback's exit code is left in `exit_code`.
#pragma once

#include <CLI/CLI.hpp>

namespace flashtile::cli {

// Exit codes of every command.
inline constexpr int exit_ok = 0;
inline constexpr int exit_wrong_result = 1;
inline constexpr int exit_usage = 2;  // usage or bad input

void add_info(CLI::App& app, int& exit_code);
void add_attend(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_io(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_compile(CLI::App& app, int& exit_code);

}  // namespace flashtile::cli
