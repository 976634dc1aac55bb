// in_parallel.h: tasks of seconds each, such as compiling kernels, on as many threads as there are CPUs. Not for
// kernels' own work, whose threads are src/cpu/threads.h.
#pragma once

#include <cstddef>
#include <functional>

namespace flashtile {

// Calls task(n) once for every n in [0, count), and progress(done, count) after each, from any of the threads but one
// at a time. The first exception, from either, ends the rest and is thrown when all threads are done.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& task,
                 const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace flashtile
