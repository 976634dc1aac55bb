// cpu_for_gpu.cpp: preloaded before the library, beside the fake driver, whose kernels do nothing and whose memory is
// the host's: after each call on "CUDA" the CPU computes the same, so that commands which check a GPU's results can be
// followed to their end without one. Says nothing about CUDA kernels.
#include <dlfcn.h>
#include <flashtile/flashtile.h>

#include <initializer_list>
#include <vector>

namespace {

template <class Function>
Function* real(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The same struct, its tensors on the CPU.
template <class Struct>
class OnCpu {
public:
    OnCpu(const Struct& from, std::initializer_list<const flashtile_tensor * Struct::*> tensors) : copy_(from) {
        tensors_.reserve(tensors.size());
        for (const auto tensor : tensors) {
            if (copy_.*tensor == nullptr) continue;
            tensors_.push_back(*(copy_.*tensor));
            tensors_.back().device_type = FLASHTILE_CPU;
            tensors_.back().device_id = 0;
            copy_.*tensor = &tensors_.back();
        }
    }
    OnCpu(const OnCpu&) = delete;
    OnCpu& operator=(const OnCpu&) = delete;
    const Struct* get() const { return &copy_; }

private:
    Struct copy_;
    std::vector<flashtile_tensor> tensors_;
};

OnCpu<flashtile_inputs> on_cpu(const flashtile_inputs& x) {
    using I = flashtile_inputs;
    return {x, {&I::q, &I::k, &I::v}};
}

flashtile_options without_stream(flashtile_options options) {
    options.stream = nullptr;
    options.workspace = nullptr;
    options.workspace_size = 0;
    return options;
}

}  // namespace

flashtile_status flashtile_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                                   const flashtile_forward_outputs* outputs) {
    using O = flashtile_forward_outputs;
    auto* const call = real<decltype(flashtile_forward)>("flashtile_forward");
    if (const flashtile_status status = call(options, inputs, outputs); status != FLASHTILE_OK) return status;
    const flashtile_options plain = without_stream(*options);
    return call(&plain, on_cpu(*inputs).get(), OnCpu<O>(*outputs, {&O::out, &O::lse}).get());
}

flashtile_status flashtile_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                                    const flashtile_gradients* gradients) {
    using G = flashtile_gradients;
    auto* const call = real<decltype(flashtile_backward)>("flashtile_backward");
    if (const flashtile_status status = call(options, inputs, gradients); status != FLASHTILE_OK) return status;
    const flashtile_options plain = without_stream(*options);
    return call(&plain, on_cpu(*inputs).get(),
                OnCpu<G>(*gradients, {&G::out, &G::lse, &G::dout, &G::dlse, &G::dq, &G::dk, &G::dv}).get());
}

const char* flashtile_last_run(void) {
    return "cuda kernels that do nothing, then the CPU";
}
