// client.cpp: a process that uses CUDA, for jit_test.cpp: what a process remembers (driver, compiler, kernels) must be
// new for every test.
//   cuda_client kernels CONFIGS THREADS DEVICES   asks for so many configs, from so many threads each, on so many
//   devices cuda_client forward                           calls flashtile_forward twice, causal, bf16, head dimension
//   64 cuda_client bundle PATH ARCHITECTURE OPTIONS BACKWARD    compiles a bundle for bf16, head dimension 64
//   cuda_client load PATH                         loads that bundle, then as forward
//   cuda_client info                              prints flashtile_cuda_info
// Prints what the fakes counted, or "error STATUS MESSAGE".
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <flashtile/flashtile.hpp>
#include <mutex>
#include <set>
#include <string_view>
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

void ask_for_kernels(int configs, int threads, int devices) {
    std::mutex mutex;
    std::set<const gpu::LoadedKernel*> kernels;
    int mode = 0;  // what a thread's capture mode was left at
    std::string error;
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread)
        running.emplace_back([&, thread] {
            for (int config = 0; config < configs; ++config)
                for (int n = 0; n < devices; ++n) try {
                        const gpu::Device& device = gpu::device((thread + n) % devices);  // both at the same time
                        const gpu::ContextScope scope(device);
                        const KernelConfig wanted{.head_dim = 16 * (config + 1), .Br = 64, .Bc = 64, .warps = 4};
                        const gpu::LoadedKernel& kernel = gpu::kernel_for(wanted, device, 50000);
                        const std::lock_guard lock(mutex);
                        kernels.insert(&kernel);
                        mode = std::max(mode, ask_fake("fake_capture_mode"));
                    } catch (const Error& caught) {
                        const std::lock_guard lock(mutex);
                        error = std::to_string(caught.status()) + " " + caught.what();
                    }
        });
    running.clear();
    if (!error.empty())
        std::printf("error %s\n", error.c_str());
    else
        std::printf("loads %d contexts %d shared %d mode %d functions %zu\n", ask_fake("fake_loads"),
                    ask_fake("fake_contexts"), ask_fake("fake_shared_memory"), mode, kernels.size());
}

// The fake driver reads no memory, so any address does.
void forward_twice() {
    const auto tensor = [](std::uintptr_t address) {
        return view(reinterpret_cast<void*>(address << 32), bf16, {2, 100, 3, 64}, device{FLASHTILE_CUDA, 1});
    };
    for (int call = 0; call < 2; ++call) forward({.causal = true}, tensor(1), tensor(2), tensor(3), tensor(4));
    std::printf("loads %d contexts %d launches %d\n", ask_fake("fake_loads"), ask_fake("fake_contexts"),
                ask_fake("fake_launches"));
}

void make_bundle(const std::string& path, int architecture, unsigned options, int backward) {
    flashtile_bundle_item item = FLASHTILE_BUNDLE_ITEM_INIT;
    item.architecture = architecture;
    item.dtype = FLASHTILE_BF16;
    item.head_dim = 64;
    item.options = options;
    item.backward = backward;
    std::size_t calls = 0, kernels = 0;
    compile_bundle(path, {&item, 1}, [&](std::size_t done, std::size_t total) {
        if (done != ++calls) std::printf("progress %zu after %zu\n", done, calls - 1);
        kernels = total;
    });
    std::printf("%zu of %zu kernels\n", calls, kernels);
}

}  // namespace

int main(int, char** argv) {
    const std::string_view what = argv[1];
    try {
        if (what == "kernels") ask_for_kernels(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
        if (what == "bundle")
            make_bundle(argv[2], std::atoi(argv[3]), static_cast<unsigned>(std::atoi(argv[4])), std::atoi(argv[5]));
        if (what == "load") load_bundle(argv[2]);
        if (what == "load" || what == "forward") forward_twice();
        if (what == "info") std::printf("%s\n", cuda_info().c_str());
    } catch (const error& caught) {
        std::printf("error %d %s\n", static_cast<int>(caught.code()), caught.what());
    }
    return 0;
}
