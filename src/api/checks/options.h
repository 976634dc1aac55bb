// options.h: the checks of flashtile_options, a group of options at a time, and what each group becomes.
#pragma once

#include "core/problem.h"

namespace flashtile::api {

// The caller's options, completed where its version of the struct is older; the defaults where there are none.
flashtile_options read_options(const flashtile_options* given);

// Causal, alignment and window, scale and softcap, dropout, and the ways in which results repeat, as the Problem keeps
// them. The scale's default and the window's reach need the sizes: settle_scale_and_window, once they are known.
Problem check_problem_options(const flashtile_options& options);
void settle_scale_and_window(const flashtile_options& options, Problem& problem);

// Threads, instruction set, executor, stream and workspace. The device is that of the tensors.
Execution check_execution(const flashtile_options& options);

// What threads and an executor must be, in a call as in the process's settings. `zero` is what 0 threads mean there.
void check_threads(std::int32_t threads, const char* zero);
void check_executor(const flashtile_executor& executor);

// A problem with dropout has limits that Philox's packing sets (shared/philox.h), of which this is that of i and j.
inline constexpr std::int64_t kMaxDropoutLength = std::int64_t{1} << 32;
void check_dropout_sizes(const Problem& problem);

}  // namespace flashtile::api
