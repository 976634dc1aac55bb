// threads.h: running a batch of tasks on several threads: on flashtile's own pool, or on the executor that the host
// program supplies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/problem.h"

namespace flashtile::cpu {

// The process's settings (flashtile_set_threads, FLASHTILE_THREADS, flashtile_set_executor).
void set_threads(std::int32_t threads);
std::int32_t get_threads();
void set_executor(const flashtile_executor* executor);

// Threads that a call runs on: its own wish, or the process's, and no more than its executor runs at once.
std::int32_t threads_for(const Execution& execution);

// Calls task(ticket, slot) once for each ticket in [0, tickets). Tickets are claimed in ascending order. At most
// `slots` run at a time, each with a slot of its own in [0, slots): its scratch memory.
void run_tasks(const Execution& execution, std::int32_t slots, std::int64_t tickets,
               const std::function<void(std::int64_t ticket, std::int32_t slot)>& task);

}  // namespace flashtile::cpu
