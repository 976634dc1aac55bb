// in_parallel.cpp: see in_parallel.h.
#include "core/in_parallel.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/signals_blocked.h"

namespace flashtile {

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& task,
                 const std::function<void(std::size_t, std::size_t)>& progress) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;  // of the two below, and held while progress runs
    std::size_t done = 0;
    std::exception_ptr failure;
    const auto work = [&] {
        for (std::size_t n; (n = next++) < count;) try {
                task(n);
                const std::lock_guard lock(mutex);
                progress(++done, count);
            } catch (const abi::__forced_unwind&) {  // progress ended this thread, as Python does at its end
                throw;
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
                next = count;
            }
    };
    {
        const std::size_t cpus = std::max(1u, std::thread::hardware_concurrency());
        std::vector<std::jthread> others(std::min(cpus, std::max<std::size_t>(count, 1)) - 1);
        {
            const SignalsBlocked blocked;
            for (std::jthread& other : others) other = std::jthread(work);
        }
        work();
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace flashtile
