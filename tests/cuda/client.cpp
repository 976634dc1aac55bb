// client.cpp: a process that uses CUDA, for jit_test.cpp: what a process remembers (driver, compiler, kernels) must be
// new for every test.
//
//   cuda_client kernels CONFIGS THREADS DEVICES          so many configs, from so many threads each, on so many devices
//
//   cuda_client forward                                  flashtile_forward twice, causal, bf16, head dimension 64
//
//   cuda_client scores FUNCTION ...                      forward's problem once with each score function
//
//   cuda_client can                                      what flashtile_can_run says of forward's problem, a line a
//   pass
//
//   cuda_client prepare                                  flashtile_prepare of forward's problem, forward and backward,
//   then as forward
//
//   cuda_client prepare_bias                             the same with a bias, first without its gradient and then with
//   it
//
//   cuda_client lengths FIRST SECOND END USED            forward of two packed sequences with check_values
//
//   cuda_client bundle PATH ARCHITECTURE[,..] OPTIONS BACKWARD  compiles a bundle for bf16, head dimension 64
//
//   cuda_client load PATH                                loads that bundle, then as forward
//
//   cuda_client info                                     prints flashtile_cuda_info
//
//   cuda_client tile [TUNED KEEP | forget]               takes the tuned tile, or forgets all, where that is said;
//                                                        prints the plan of forward's problem as JSON, and on a line of
//                                                        its own the shared memory that a call's kernel got
//
// Prints what the fakes counted, or "error STATUS MESSAGE".
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <flashtile/flashtile.hpp>
#include <mutex>
#include <set>
#include <sstream>
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

void forward_with_scores(int count, char** functions) {
    const auto tensor = [](std::uintptr_t address) {
        return view(reinterpret_cast<void*>(address << 32), bf16, {2, 100, 3, 64}, device{FLASHTILE_CUDA, 1});
    };
    for (int n = 0; n < count; ++n) {
        options o;
        o.score_function = functions[n];
        forward(o, tensor(1), tensor(2), tensor(3), tensor(4));
    }
    std::printf("loads %d launches %d\n", ask_fake("fake_loads"), ask_fake("fake_launches"));
}

void ask_whether_it_can_run() {
    const tensor x = view(reinterpret_cast<void*>(std::uintptr_t{1} << 32), bf16, {2, 100, 3, 64}, cuda(1));
    for (const runnable& answer :
         {can_run_forward({.causal = true}, x, x, x), can_run_backward({.causal = true}, x, x, x)})
        std::printf("%s\n", answer ? answer.on.c_str() : answer.why_not.c_str());
    std::printf("loads %d launches %d\n", ask_fake("fake_loads"), ask_fake("fake_launches"));
}

void prepare_and_run() {
    const tensor x = view(reinterpret_cast<void*>(std::uintptr_t{1} << 32), bf16, {2, 100, 3, 64}, cuda(1));
    std::size_t calls = 0, kernels = 0;
    prepare({.causal = true}, x, x, x, false, true, [&](std::size_t done, std::size_t total) {
        if (done == ++calls) kernels = total;
    });
    std::printf("%zu of %zu prepared, loads %d\n", calls, kernels, ask_fake("fake_loads"));
    forward_twice();
}

void prepare_with_a_bias() {
    const tensor x = view(reinterpret_cast<void*>(std::uintptr_t{1} << 32), bf16, {2, 100, 3, 64}, cuda(1));
    options o;
    o.bias = view(reinterpret_cast<void*>(std::uintptr_t{2} << 32), bf16, {1, 3, 100, 100}, cuda(1));
    for (const bool gradient : {false, true}) {
        std::size_t kernels = 0;
        prepare(
            o, x, x, x, true, true, [&](std::size_t, std::size_t total) { kernels = total; }, gradient);
        std::printf("%zu prepared\n", kernels);
    }
}

void plan_and_run(int arguments, char** argument) {
    const tensor x = view(reinterpret_cast<void*>(std::uintptr_t{1} << 32), bf16, {2, 100, 3, 64}, cuda(1));
    if (arguments == 1) forget_choices(true);
    if (arguments == 2) use_choice(argument[0], std::atoi(argument[1]) != 0);
    std::printf("%s\n", plan_report({.causal = true}, x, x, x).c_str());
    const tensor out = view(reinterpret_cast<void*>(std::uintptr_t{2} << 32), bf16, {2, 100, 3, 64}, cuda(1));
    const tensor lse = view(reinterpret_cast<void*>(std::uintptr_t{3} << 32), fp32, {2, 3, 100}, cuda(1));
    forward({.causal = true}, x, x, x, out, lse);
    std::printf("%d\n", ask_fake("fake_shared_memory"));
}

// Two packed sequences with check_values. The fake driver's device memory is the host's.
void check_lengths(std::int64_t first, std::int64_t second, std::int64_t end, std::int32_t used) {
    const std::int64_t cu[] = {first, second, end};
    const std::int32_t seqused[] = {used, 0};
    const device where{FLASHTILE_CUDA, 1};
    const auto tensor = [&](std::uintptr_t address) {
        return view(reinterpret_cast<void*>(address << 32), bf16, {100, 3, 64}, where);
    };
    options o;
    o.cu_seqlens_q = o.cu_seqlens_k = view(cu, dtype::int64, {3}, where);
    o.max_seqlen_q = o.max_seqlen_k = 100;
    o.seqused_k = view(seqused, dtype::int32, {2}, where);
    o.check_values = true;
    try {
        forward(o, tensor(1), tensor(2), tensor(3), tensor(4));
    } catch (const error& caught) {
        std::printf("error %d %s\n", static_cast<int>(caught.code()), caught.what());
    }
    std::printf("launches %d\n", ask_fake("fake_launches"));
}

void make_bundle(const std::string& path, const std::string& architectures, unsigned options, int backward) {
    std::vector<flashtile_bundle_item> items;
    std::istringstream words(architectures);
    for (std::string word; std::getline(words, word, ',');) {
        flashtile_bundle_item item = FLASHTILE_BUNDLE_ITEM_INIT;
        item.architecture = std::stoi(word);
        item.dtype = FLASHTILE_BF16;
        item.head_dim = 64;
        item.options = options;
        item.backward = backward;
        items.push_back(item);
    }
    std::size_t calls = 0, kernels = 0;
    compile_bundle(path, items, [&](std::size_t done, std::size_t total) {
        if (done != ++calls) std::printf("progress %zu after %zu\n", done, calls - 1);
        kernels = total;
    });
    std::printf("%zu of %zu kernels\n", calls, kernels);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argv[1];
    try {
        if (what == "kernels") ask_for_kernels(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
        if (what == "scores") forward_with_scores(argc - 2, argv + 2);
        if (what == "bundle")
            make_bundle(argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])), std::atoi(argv[5]));
        if (what == "load") load_bundle(argv[2]);
        if (what == "load" || what == "forward") forward_twice();
        if (what == "can") ask_whether_it_can_run();
        if (what == "prepare") prepare_and_run();
        if (what == "prepare_bias") prepare_with_a_bias();
        if (what == "lengths")
            check_lengths(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
        if (what == "tile") plan_and_run(argc - 2, argv + 2);
        if (what == "info") std::printf("%s\n", cuda_info().c_str());
    } catch (const error& caught) {
        std::printf("error %d %s\n", static_cast<int>(caught.code()), caught.what());
    }
    return 0;
}
