// handlers.cpp: what XLA calls where a program of JAX's has attention in it: handlers of its foreign function interface
// (FFI), one a pass and platform. They lie in a library of their own, libflashtile_jax.so, so that libflashtile.so
// knows nothing of XLA. The FFI is a header of jaxlib's; nothing of jaxlib is linked.
//
// Attributes: `operands` and `results` say by name what the buffers are, with a space between names; every other one is
// a field that has another value than the default. Both by the names of call.h.
#include "xla/call.h"

#include <xla/ffi/api/ffi.h>

#include <exception>

namespace ffi = ::xla::ffi;

namespace flashtile::xla {
namespace {

// 0 for what the library does not have: the call says then what is wrong.
std::int32_t dtype_of(ffi::DataType type) {
    switch (type) {
        case ffi::DataType::F32:
            return FLASHTILE_FP32;
        case ffi::DataType::F16:
            return FLASHTILE_FP16;
        case ffi::DataType::BF16:
            return FLASHTILE_BF16;
        case ffi::DataType::PRED:
            return FLASHTILE_BOOL;
        case ffi::DataType::S32:
            return FLASHTILE_INT32;
        case ffi::DataType::S64:
            return FLASHTILE_INT64;
        default:
            return FLASHTILE_DTYPE_UNSET;
    }
}

Buffer buffer_of(const ffi::AnyBuffer& buffer) {
    const ffi::AnyBuffer::Dimensions shape = buffer.dimensions();
    return {buffer.untyped_data(), dtype_of(buffer.element_type()), {shape.begin(), shape.size()}};
}

// A value that was asked for, or the reason why it is none.
template <typename T>
T value_of(const ffi::ErrorOr<T>& asked) {
    if (asked.has_error()) throw std::invalid_argument(asked.error().message());
    return *asked;
}

// Takes the first name off a list.
std::string_view next_name(std::string_view& names) {
    const std::size_t end = names.find(' ');
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
    if (name.empty()) throw std::invalid_argument("operands or results name fewer buffers than there are");
    return name;
}

void set_attributes(Call& call, const ffi::Dictionary& attributes) {
    for (auto it = attributes.begin(); it != attributes.end(); ++it) {
        if (*it == "operands" || *it == "results") continue;
        if (attributes.isa<std::int64_t>(it))
            call.set(*it, value_of(attributes.get<std::int64_t>(*it)));
        else if (attributes.isa<double>(it))
            call.set(*it, value_of(attributes.get<double>(*it)));
        else
            call.set(*it, value_of(attributes.get<std::string_view>(*it)));
    }
}

ffi::Error error_of(flashtile_status status) {
    const auto code = [&] {
        switch (status) {
            case FLASHTILE_INVALID_ARGUMENT:
                return ffi::ErrorCode::kInvalidArgument;
            case FLASHTILE_UNSUPPORTED:
                return ffi::ErrorCode::kUnimplemented;
            case FLASHTILE_OUT_OF_MEMORY:
                return ffi::ErrorCode::kResourceExhausted;
            default:
                return ffi::ErrorCode::kInternal;
        }
    }();
    return {code, std::string("flashtile: ") + flashtile_last_error()};
}

ffi::Error handle(Pass pass, const Place& place, const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
                  const ffi::Dictionary& attributes) try {
    Call call(pass, place);
    set_attributes(call, attributes);
    std::string_view names = value_of(attributes.get<std::string_view>("operands"));
    for (std::size_t n = 0; n < operands.size(); ++n)
        call.read(next_name(names), buffer_of(value_of(operands.get<ffi::AnyBuffer>(n))));
    names = value_of(attributes.get<std::string_view>("results"));
    Buffer workspace{};
    for (std::size_t n = 0; n < results.size(); ++n) {
        const std::string_view name = next_name(names);
        const Buffer buffer = buffer_of(*value_of(results.get<ffi::AnyBuffer>(n)));
        if (name == "workspace")
            workspace = buffer;
        else
            call.write(name, buffer);
    }
    if (workspace.data != nullptr) {
        // Its size was asked for when the program was lowered, of the GPU that was there. Where this call needs more,
        // the library allocates it on the stream.
        std::size_t needed = 0;
        if (const flashtile_status status = call.workspace_size(needed); status != FLASHTILE_OK)
            return error_of(status);
        const auto given = static_cast<std::size_t>(workspace.shape[0]);
        if (needed != 0 && needed <= given) call.use_workspace(workspace.data, given);
    }
    const flashtile_status status = call.run();
    return status == FLASHTILE_OK ? ffi::Error::Success() : error_of(status);
} catch (const std::exception& error) {
    return {ffi::ErrorCode::kInvalidArgument, std::string("flashtile: ") + error.what()};
}

template <Pass pass>
ffi::Error on_cpu(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
    return handle(pass, {FLASHTILE_CPU, 0, nullptr}, operands, results, attributes);
}

template <Pass pass>
ffi::Error on_cuda(void* stream, std::int32_t device, ffi::RemainingArgs operands, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
    return handle(pass, {FLASHTILE_CUDA, device, stream}, operands, results, attributes);
}

auto cpu_binding() {
    return ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs();
}

auto cuda_binding() {
    return ffi::Ffi::Bind()
        .Ctx<ffi::PlatformStream<void*>>()
        .Ctx<ffi::DeviceOrdinal>()
        .RemainingArgs()
        .RemainingRets()
        .Attrs();
}

}  // namespace
}  // namespace flashtile::xla

using flashtile::xla::Pass;  // the macros declare C functions
#pragma GCC visibility push(default)

// The version of the FFI's ABI that these handlers speak: python/flashtile/jax/_handlers.py compares it with jaxlib's.
extern "C" void flashtile_jax_ffi_version(int* major, int* minor) {
    *major = XLA_FFI_API_MAJOR;
    *minor = XLA_FFI_API_MINOR;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(flashtile_jax_forward_cpu, flashtile::xla::on_cpu<Pass::forward>,
                              flashtile::xla::cpu_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(flashtile_jax_backward_cpu, flashtile::xla::on_cpu<Pass::backward>,
                              flashtile::xla::cpu_binding());
// Launches only, on the stream that it is given: XLA may capture the call once and replay it (command buffers).
XLA_FFI_DEFINE_HANDLER_SYMBOL(flashtile_jax_forward_cuda, flashtile::xla::on_cuda<Pass::forward>,
                              flashtile::xla::cuda_binding(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(flashtile_jax_backward_cuda, flashtile::xla::on_cuda<Pass::backward>,
                              flashtile::xla::cuda_binding(), {ffi::Traits::kCmdBufferCompatible});

#pragma GCC visibility pop
