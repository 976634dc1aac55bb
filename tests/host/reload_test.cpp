// reload_test.cpp: a program that opens the library, calls it on several threads and closes it again, many times. Its
// threads may still be on their way to sleep when the library is closed, and must neither crash nor become more.
//
//     reload_test LIBRARY
#include <dlfcn.h>
#include <flashtile/flashtile.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

namespace {

// False where a call fails.
bool call(void* library) {
    const auto forward = reinterpret_cast<decltype(&flashtile_forward)>(dlsym(library, "flashtile_forward"));
    std::vector<float> x(64 * 8 * 32, 0.5f), y(x.size(), -1.0f);
    const auto rows = [](std::vector<float>& data) {
        flashtile_tensor tensor{};
        tensor.data = data.data();
        tensor.dtype = FLASHTILE_FP32;
        tensor.device_type = FLASHTILE_CPU;
        tensor.rank = 4;
        const std::int64_t shape[] = {1, 64, 8, 32};
        for (std::int64_t n = 3, stride = 1; n >= 0; stride *= shape[n--]) {
            tensor.shape[n] = shape[n];
            tensor.stride[n] = stride;
        }
        return tensor;
    };
    const flashtile_tensor in = rows(x), out = rows(y);
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    options.threads = 4;
    flashtile_inputs inputs = FLASHTILE_INPUTS_INIT;
    inputs.q = inputs.k = inputs.v = &in;
    flashtile_forward_outputs outputs = FLASHTILE_FORWARD_OUTPUTS_INIT;
    outputs.out = &out;
    return forward(&options, &inputs, &outputs) == FLASHTILE_OK && y == x;  // a mean of equal values
}

// The call is made in a thread that ends, since a living thread's objects would keep the library in memory.
bool load_call_and_close(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    bool ok = false;
    std::thread([&] { ok = call(library); }).join();
    return dlclose(library) == 0 && ok;
}

std::ptrdiff_t threads_now() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

}  // namespace

int main(int, char** arguments) {
    if (!load_call_and_close(arguments[1])) return std::puts("the first call failed"), 1;
    const std::ptrdiff_t before = threads_now();
    for (int turn = 0; turn < 50; ++turn)
        if (!load_call_and_close(arguments[1])) return std::puts("a later call failed"), 1;
    if (threads_now() != before) return std::printf("%td threads have become %td\n", before, threads_now()), 1;
    return 0;
}
