// fuzz_arguments.cpp: the C interface on drawn arguments. A call that returns an error has written nothing; one that
// returns ok has written nothing but its outputs, which share no memory with anything; and a call's workspace function
// finds the same arguments good or bad.
#include <flashtile/flashtile.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "drawn_call.h"
#include "memory.h"
#include "require.h"

namespace flashtile::fuzz {
namespace {

void judge(const DrawnCall& call, const flashtile_options* options, flashtile_status expected) {
    const auto inputs = call.inputs(), outputs = call.outputs();
    auto all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    guard_memory(all);
    const flashtile_status status = call.run(options);
    const bool ok = status == FLASHTILE_OK;
    const std::string message = std::string(flashtile_status_name(status)) + ": " + flashtile_last_error();
    require(only_changed(ok ? outputs : decltype(outputs)()), "a call writes its outputs only; it ended in " + message);
    if (call.has_workspace())
        require(status == expected, "the workspace function and the call agree; the call ended in " + message);
    require(status != FLASHTILE_INTERNAL && status != FLASHTILE_OUT_OF_MEMORY, message);
    if (ok)
        require(outputs_lie_alone(outputs, call.in_place() ? decltype(inputs)() : inputs),
                std::string("outputs share no memory with anything in ") + flashtile_last_run());
    else
        require(*flashtile_last_error() != '\0', "an error has a message");
}

// The caller's workspace: exactly as much as the call asks for, in a block of its own that the sanitizer watches; or a
// byte less, which must be refused.
void judge_with_workspace(const DrawnCall& call, std::size_t bytes, bool enough) {
    constexpr std::align_val_t line{64};
    struct Delete {
        void operator()(std::byte* p) const { ::operator delete(p, line); }
    };
    bytes -= enough ? 0 : 1;
    const std::unique_ptr<std::byte, Delete> workspace(static_cast<std::byte*>(::operator new(bytes, line)));
    flashtile_options options = call.options();
    options.workspace = workspace.get();
    options.workspace_size = bytes;
    judge(call, &options, enough ? FLASHTILE_OK : FLASHTILE_INVALID_ARGUMENT);
}

void run(FuzzedDataProvider& draw) {
    const DrawnCall call(draw);
    const flashtile_options* options = draw.ConsumeIntegralInRange(0, 15) == 15 ? nullptr : &call.options();
    std::size_t bytes = 0;
    flashtile_status planned = FLASHTILE_OK;
    if (call.has_workspace()) planned = call.plan(options, bytes);
    // Arguments that are legal but lie about our memory, or ask for hours.
    if (planned == FLASHTILE_OK && !call.can_run()) return;
    const bool complete = options != nullptr && options->size == sizeof(flashtile_options);
    if (planned == FLASHTILE_OK && complete && bytes != 0 && draw.ConsumeBool())
        judge_with_workspace(call, bytes, draw.ConsumeBool());
    else
        judge(call, options, planned);
}

}  // namespace
}  // namespace flashtile::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // libFuzzer starts with inputs of a few bytes, which would leave the last draws, the damage, at their first value:
    // random bytes follow the input's, which are drawn last byte first.
    constexpr std::size_t enough = 1024;
    std::vector<std::uint8_t> bytes(enough);
    std::minstd_rand random(static_cast<unsigned>(std::accumulate(data, data + std::min<std::size_t>(size, 4), 1U)));
    std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random() >> 8); });
    bytes.insert(bytes.end(), data, data + size);
    FuzzedDataProvider draw(bytes.data(), bytes.size());
    flashtile::fuzz::run(draw);
    return 0;
}
