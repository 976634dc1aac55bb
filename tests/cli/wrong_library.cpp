// wrong_library.cpp: preloaded before the library, it makes the first value of every forward result wrong by 1. So the
// command line's exit code 1 is seen without a way to make the product itself be wrong.
#include <dlfcn.h>
#include <flashtile/flashtile.h>

flashtile_status flashtile_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                                   const flashtile_forward_outputs* outputs) {
    const auto real = reinterpret_cast<decltype(&flashtile_forward)>(::dlsym(RTLD_NEXT, "flashtile_forward"));
    const flashtile_status status = real(options, inputs, outputs);
    if (status == FLASHTILE_OK) *static_cast<float*>(outputs->out->data) += 1.0f;  // tests use it with fp32 only
    return status;
}
