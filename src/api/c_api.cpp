// c_api.cpp: the exported functions. Each converts, calls, catches and returns a status; no exception crosses.
#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/checks/append_kv.h"
#include "api/checks/merge.h"
#include "api/checks/options.h"
#include "api/checks/quantize.h"
#include "api/dlpack.h"
#include "api/validate.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/in_parallel.h"
#include "core/per_thread.h"
#include "cpu/features.h"
#include "cpu/threads.h"
#include "cpu/tuned_blocks.h"
#include "cuda/compile_bundle.h"
#include "cuda/device.h"
#include "cuda/info.h"
#include "cuda/jit/images.h"
#include "cuda/tuned_tiles.h"
#include "flashtile/flashtile.h"

namespace {

using namespace flashtile;

// What a thread's last call has to say.
struct Said {
    std::string error, run, would_run, cuda_info, plan_report;
};

Said& said() {
    return PerThread<Said>::get();
}

flashtile_status report(flashtile_status status, const std::string& message) {
    said().error = message;
    return status;
}

// What the exception in flight means to the caller, whoever threw it: an executor throws what it likes.
flashtile_status report_exception() {
    try {
        throw;
    } catch (const Error& error) {
        return report(error.status(), error.what());
    } catch (const std::bad_alloc&) {
        return report(FLASHTILE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return report(FLASHTILE_INTERNAL, std::string("internal error: ") + error.what());
    } catch (...) {
        return report(FLASHTILE_INTERNAL, "internal error: an exception that is no std::exception was thrown");
    }
}

template <class F>
flashtile_status guarded(F body) noexcept {
    try {
        body();
        return FLASHTILE_OK;
    } catch (...) {
        try {
            return report_exception();
        } catch (...) {
            return FLASHTILE_OUT_OF_MEMORY;  // none for the message either
        }
    }
}

template <class T>
T& require(T* pointer, const char* name) {
    if (pointer == nullptr)
        throw Error(FLASHTILE_INVALID_ARGUMENT, std::string(name) + " is NULL, allowed is a pointer");
    return *pointer;
}

}  // namespace

extern "C" {

flashtile_status flashtile_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                                   const flashtile_forward_outputs* outputs) {
    return guarded([&] {
        const api::Call call = api::validate_forward(options, inputs, outputs);
        said().run = backend_for(call.execution.device_type).forward(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                                    const flashtile_gradients* gradients) {
    return guarded([&] {
        const api::Call call = api::validate_backward(options, inputs, gradients);
        said().run = backend_for(call.execution.device_type).backward(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_forward_workspace(const flashtile_options* options, const flashtile_inputs* inputs,
                                             const flashtile_forward_outputs* outputs, size_t* bytes) {
    return guarded([&] {
        const api::Call call = api::validate_forward(options, inputs, outputs);
        require(bytes, "bytes") =
            backend_for(call.execution.device_type).forward_workspace(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_backward_workspace(const flashtile_options* options, const flashtile_inputs* inputs,
                                              const flashtile_gradients* gradients, size_t* bytes) {
    return guarded([&] {
        const api::Call call = api::validate_backward(options, inputs, gradients);
        require(bytes, "bytes") =
            backend_for(call.execution.device_type).backward_workspace(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_dropout_mask(const flashtile_options* options, const flashtile_tensor* keep) {
    return flashtile_dropout_mask_of_shards(options, nullptr, nullptr, keep);
}

flashtile_status flashtile_dropout_mask_of_shards(const flashtile_options* options, const flashtile_tensor* origins_i,
                                                  const flashtile_tensor* origins_j, const flashtile_tensor* keep) {
    return guarded([&] {
        const api::Call call = api::validate_dropout_mask(options, origins_i, origins_j, keep);
        backend_for(call.execution.device_type).dropout_mask(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_merge(const flashtile_options* options, const flashtile_merge_tensors* tensors) {
    return guarded([&] {
        const api::MergeCall call = api::validate_merge(options, tensors);
        said().run = backend_for(call.execution.device_type).merge(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_append_kv(const flashtile_options* options, const flashtile_append_tensors* tensors) {
    return guarded([&] {
        const api::AppendCall call = api::validate_append(options, tensors);
        said().run = backend_for(call.execution.device_type).append_kv(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_quantize(const flashtile_options* options, const flashtile_quantize_tensors* tensors) {
    return guarded([&] {
        const api::QuantizeCall call = api::validate_quantize(options, tensors);
        said().run = backend_for(call.execution.device_type).quantize(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_dequantize(const flashtile_options* options, const flashtile_quantize_tensors* tensors) {
    return guarded([&] {
        const api::QuantizeCall call = api::validate_dequantize(options, tensors);
        said().run = backend_for(call.execution.device_type).dequantize(call.problem, call.operands, call.execution);
    });
}

flashtile_status flashtile_from_dlpack(const void* dl_tensor, flashtile_tensor* tensor) {
    return guarded([&] { require(tensor, "tensor") = api::from_dlpack(dl_tensor); });
}

const char* flashtile_last_error(void) {
    return said().error.c_str();
}
const char* flashtile_last_run(void) {
    return said().run.c_str();
}
const char* flashtile_version(void) {
    return FLASHTILE_VERSION_STRING;
}

const char* flashtile_status_name(std::int32_t status) {
    switch (status) {
        case FLASHTILE_OK:
            return "ok";
        case FLASHTILE_INVALID_ARGUMENT:
            return "invalid argument";
        case FLASHTILE_UNSUPPORTED:
            return "unsupported";
        case FLASHTILE_OUT_OF_MEMORY:
            return "out of memory";
        case FLASHTILE_DEVICE_ERROR:
            return "device error";
        case FLASHTILE_INTERNAL:
            return "internal error";
    }
    return "unknown status";
}

int flashtile_isa_available(flashtile_isa isa) {
    return cpu::isa_available(isa) ? 1 : 0;
}
const char* flashtile_isa_why_not(flashtile_isa isa) {
    return cpu::isa_why_not(isa);
}
const char* flashtile_isa_name(flashtile_isa isa) {
    return cpu::isa_name(isa);
}
flashtile_isa flashtile_isa_chosen(flashtile_dtype dtype) {
    flashtile_isa isa = FLASHTILE_ISA_PORTABLE;
    // A FLASHTILE_ISA that cannot run is reported by the calls themselves.
    static_cast<void>(guarded([&] { isa = cpu::kernels_for(static_cast<DType>(dtype), FLASHTILE_ISA_AUTO).isa; }));
    return isa;
}

flashtile_status flashtile_set_threads(int32_t threads) {
    return guarded([&] {
        api::check_threads(threads, "the default");
        cpu::set_threads(threads);
    });
}

int32_t flashtile_get_threads(void) {
    std::int32_t threads = 1;
    static_cast<void>(guarded([&] { threads = cpu::get_threads(); }));
    return threads;
}

flashtile_status flashtile_set_executor(const flashtile_executor* executor) {
    return guarded([&] {
        if (executor != nullptr) api::check_executor(*executor);
        cpu::set_executor(executor);
    });
}

const char* flashtile_cuda_info(void) {
    const flashtile_status status = guarded([] { said().cuda_info = gpu::info_json(); });
    return status == FLASHTILE_OK ? said().cuda_info.c_str() : "{}";
}

flashtile_status flashtile_plan_report(const flashtile_options* options, const flashtile_inputs* inputs,
                                       const char* device_name, int32_t registers, const char** json) {
    return guarded([&] {
        require(json, "json");
        const api::Call call = api::validate_inputs(options, inputs, false);
        said().plan_report = backend_for(call.execution.device_type)
                                 .plan_report(call.problem, call.operands, call.execution,
                                              {.device_name = device_name, .registers = registers != 0});
        *json = said().plan_report.c_str();
    });
}

flashtile_status flashtile_use_choice(const char* choice, int32_t keep) {
    return guarded([&] {
        const std::string_view text = &require(choice, "choice");
        if (cpu::is_of_cpu(text))
            cpu::use_tuned_blocks(text, keep != 0);
        else
            gpu::use_tuned_tile(text, keep != 0);
    });
}

flashtile_status flashtile_forget_choices(int32_t kept) {
    return guarded([&] {
        cpu::forget_tuned_blocks();
        gpu::forget_tuned_tiles(kept != 0);
    });
}

flashtile_status flashtile_load_bundle(const char* path) {
    return guarded([&] { gpu::load_bundle(&require(path, "path")); });
}

flashtile_status flashtile_compile_bundle(const char* path, const flashtile_bundle_item* items, size_t count,
                                          void (*progress)(void* context, size_t done, size_t total), void* context) {
    return guarded([&] {
        require(path, "path");
        if (count != 0 && require(items, "items").size != sizeof *items)
            throw Error(FLASHTILE_INVALID_ARGUMENT, "items->size is " + std::to_string(items->size) + ", allowed is " +
                                                        std::to_string(sizeof *items));
        gpu::compile_bundle(path, {items, count}, [&](std::size_t done, std::size_t total) {
            if (progress != nullptr) progress(context, done, total);
        });
    });
}

flashtile_status flashtile_can_run(const flashtile_options* options, const flashtile_inputs* inputs, int32_t backward,
                                   const char** on) {
    return guarded([&] {
        const api::Call call = api::validate_inputs(options, inputs, backward != 0);
        said().would_run =
            backend_for(call.execution.device_type)
                .would_run(backward != 0 ? Pass::backward : Pass::forward, call.problem, call.operands, call.execution);
        if (on != nullptr) *on = said().would_run.c_str();
    });
}

flashtile_status flashtile_prepare(const flashtile_prepare_item* items, size_t count,
                                   void (*progress)(void* context, size_t done, size_t total), void* context) {
    return guarded([&] {
        if (count != 0) require(items, "items");
        std::vector<Preparation> list;
        for (const flashtile_prepare_item& item : std::span(items, count)) {
            if (item.size != sizeof item)
                throw Error(FLASHTILE_INVALID_ARGUMENT, "items->size is " + std::to_string(item.size) +
                                                            ", allowed is " + std::to_string(sizeof item));
            if (item.backward < 0 || item.backward > 2)
                throw Error(FLASHTILE_INVALID_ARGUMENT,
                            "items->backward is " + std::to_string(item.backward) + ", allowed is 0, 1 or 2");
            for (const Pass pass : {Pass::forward, Pass::backward}) {
                if ((pass == Pass::forward ? item.forward : item.backward) == 0) continue;
                const bool beside = pass == Pass::forward ? item.lse != 0 : item.backward == 1;
                const api::Call call = api::validate_inputs(item.options, item.inputs, pass == Pass::backward);
                for (Preparation& each : backend_for(call.execution.device_type)
                                             .preparations(pass, call.problem, call.operands, call.execution, beside))
                    if (std::ranges::find(list, each.name, &Preparation::name) == list.end())
                        list.push_back(std::move(each));
            }
        }
        in_parallel(
            list.size(), [&](std::size_t n) { list[n].make(); },
            [&](std::size_t done, std::size_t total) {
                if (progress != nullptr) progress(context, done, total);
            });
    });
}

}  // extern "C"
