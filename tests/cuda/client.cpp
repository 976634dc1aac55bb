// client.cpp: a process that asks for kernels, for jit_test.cpp: what a process remembers (driver, compiler, kernels)
// must be new for every test.
//   cuda_client CONFIGS THREADS DEVICES   asks for so many configs, from so many threads each, on so many devices
// Prints a line "loads N contexts N shared N mode N functions N", or "error STATUS MESSAGE".
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/error.h"
#include "cuda/device.h"
#include "cuda/jit/kernels.h"

using namespace flashtile;

namespace {

int ask_fake(const char* function) {
    void* library = ::dlopen(std::getenv("FLASHTILE_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<int (*)()>(::dlsym(library, function))();
}

}  // namespace

int main(int, char** argv) {
    const int configs = std::atoi(argv[1]), threads = std::atoi(argv[2]), devices = std::atoi(argv[3]);
    std::mutex mutex;
    std::set<const cuda::LoadedKernel*> kernels;
    std::string error;
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread)
        running.emplace_back([&] {
            for (int config = 0; config < configs; ++config)
                for (int ordinal = 0; ordinal < devices; ++ordinal) try {
                        const cuda::Device& device = cuda::device(ordinal);
                        const cuda::ContextScope scope(device);
                        const KernelConfig wanted{.head_dim = 16 * (config + 1), .Br = 64, .Bc = 64, .warps = 4};
                        const cuda::LoadedKernel& kernel = cuda::kernel_for(wanted, device, 50000);
                        const std::lock_guard lock(mutex);
                        kernels.insert(&kernel);
                    } catch (const Error& caught) {
                        const std::lock_guard lock(mutex);
                        error = std::to_string(caught.status()) + " " + caught.what();
                    }
        });
    running.clear();
    if (!error.empty()) {
        std::printf("error %s\n", error.c_str());
        return 0;
    }
    std::printf("loads %d contexts %d shared %d mode %d functions %zu\n", ask_fake("fake_loads"),
                ask_fake("fake_contexts"), ask_fake("fake_shared_memory"), ask_fake("fake_capture_mode"),
                kernels.size());
    return 0;
}
