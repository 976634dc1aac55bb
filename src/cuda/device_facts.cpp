// device_facts.cpp: GPUs by name. Multiprocessors and L2 are those of the vendor's data sheets, shared memory is that
// of the compute capability (CUDA programming guide): a block may opt in to all but 1 KiB of a multiprocessor's.
#include "cuda/device_facts.h"

#include <array>
#include <cctype>

#include "core/error.h"
#include "core/per_process.h"

namespace flashtile::gpu {
namespace {

DeviceFacts facts(const char* name, int architecture, int multiprocessors, int l2_mib) {
    const int shared_kib = architecture == 80 ? 164 : architecture == 90 || architecture / 10 == 10 ? 228 : 100;
    return {.name = name,
            .architecture = architecture,
            .multiprocessors = multiprocessors,
            .shared_memory_per_block = (shared_kib - 1) * 1024,
            .shared_memory_per_multiprocessor = shared_kib * 1024,
            .l2_bytes = l2_mib * 1024 * 1024};
}

std::string plain(std::string_view name) {
    std::string text;
    for (const char c : name)
        if (c != ' ') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

struct KnownDevices {
    std::array<DeviceFacts, 13> list = {
        facts("A100-40", 80, 108, 40),   facts("A100-80", 80, 108, 40), facts("A10", 86, 72, 6),
        facts("A40", 86, 84, 6),         facts("RTX 3090", 86, 82, 6),  facts("RTX 4090", 89, 128, 72),
        facts("L4", 89, 58, 48),         facts("L40S", 89, 142, 96),    facts("H100", 90, 132, 50),
        facts("H200", 90, 132, 60),      facts("GH200", 90, 132, 60),   facts("B200", 100, 148, 126),
        facts("RTX 5090", 120, 170, 96),
    };
};
constinit PerProcess<KnownDevices> known;

}  // namespace

std::span<const DeviceFacts> known_devices() {
    return known.get().list;
}

const DeviceFacts& known_device(std::string_view name) {
    std::string allowed;
    for (const DeviceFacts& facts : known_devices()) {
        if (plain(facts.name) == plain(name)) return facts;
        allowed += (allowed.empty() ? "" : ", ") + facts.name;
    }
    throw Error(FLASHTILE_INVALID_ARGUMENT, "device_name is '" + std::string(name) + "', allowed is one of " + allowed);
}

}  // namespace flashtile::gpu
