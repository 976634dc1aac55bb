// features.cpp: which instruction set a call uses. The CPU's features decide, never its family or model. Where the
// faster of two sets depends on the vendor, each process measures both once: on some CPUs a bf16 dot product is half as
// fast as an fp32 FMA, on others twice as fast.
#include "cpu/features.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <span>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "cpu/tile_permission.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace flashtile::cpu {
namespace {

struct Set {
    flashtile_isa isa;
    const char* name;
    bool (*runs_here)();
    const Kernels& (*kernels)();  // null if this build does not contain them
};

bool always() {
    return true;
}

#if defined(__x86_64__)
// F16C, which __builtin_cpu_supports of clang 14 does not know. The process executes CPUID for it once: in a virtual
// machine the hypervisor answers CPUID, which takes longer than a small problem.
struct F16c {
    bool has = [] {
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    }();
};
constinit PerProcess<F16c> f16c;

bool has_f16c() {
    return f16c.get().has;
}
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
           __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

// FLASHTILE_WITHOUT_VBMI is for tests of what runs on CPUs that lack it.
struct Avx512Bf16 {
    bool has_vbmi = __builtin_cpu_supports("avx512vbmi") && environment("FLASHTILE_WITHOUT_VBMI").empty();
    Kernels kernels = has_vbmi ? with_byte_tables(avx512_bf16_kernels()) : avx512_bf16_kernels();
};
constinit PerProcess<Avx512Bf16> avx512_bf16;

const Kernels& best_avx512_bf16_kernels() {
    return avx512_bf16.get().kernels;
}
bool has_amx() {
    return has_avx512() && why_no_tiles().empty();
}
#elif defined(__aarch64__)
bool has_neon_bf16() {
    return (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#endif

// Sets of other machines.
[[maybe_unused]] bool never() {
    return false;
}

// From the least to the most preferred.
constexpr auto kSets = std::to_array<Set>({
    {FLASHTILE_ISA_PORTABLE, "portable", always, portable_kernels},
#if defined(__x86_64__)
        {FLASHTILE_ISA_AVX2, "avx2", has_avx2, avx2_kernels},
        {FLASHTILE_ISA_AVX512, "avx512", has_avx512, avx512_kernels},
        {FLASHTILE_ISA_AVX512_BF16, "avx512_bf16", has_avx512_bf16, best_avx512_bf16_kernels},
        {FLASHTILE_ISA_AMX, "amx", has_amx, amx_kernels},
#else
        {FLASHTILE_ISA_AVX2, "avx2", never, nullptr}, {FLASHTILE_ISA_AVX512, "avx512", never, nullptr},
        {FLASHTILE_ISA_AVX512_BF16, "avx512_bf16", never, nullptr}, {FLASHTILE_ISA_AMX, "amx", never, nullptr},
#endif
#if defined(__aarch64__)
        {FLASHTILE_ISA_NEON_BF16, "neon_bf16", has_neon_bf16, neon_bf16_kernels},
#else
        {FLASHTILE_ISA_NEON_BF16, "neon_bf16", never, nullptr},
#endif
});

const Set* find(flashtile_isa isa) {
    for (const Set& set : kSets)
        if (set.isa == isa) return &set;
    return nullptr;
}

std::string available_names() {
    std::string names;
    for (const Set& set : kSets)
        if (set.runs_here()) names += std::string(names.empty() ? "" : ", ") + set.name;
    return names;
}

const Set& require(flashtile_isa isa, const std::string& who) {
    const Set* set = find(isa);
    if (set == nullptr || !set->runs_here())
        throw Error(FLASHTILE_UNSUPPORTED,
                    who + " is " + (set != nullptr ? set->name : std::to_string(static_cast<int>(isa))) +
                        ", which this CPU or build cannot run; it can run: auto, " + available_names());
    return *set;
}

flashtile_isa isa_from_environment() {
    const std::string wish = environment("FLASHTILE_ISA");
    if (wish.empty() || wish == "auto") return FLASHTILE_ISA_AUTO;
    for (const Set& set : kSets)
        if (set.name == wish) return require(set.isa, "FLASHTILE_ISA").isa;
    throw Error(FLASHTILE_INVALID_ARGUMENT,
                "FLASHTILE_ISA is '" + wish + "', allowed is one of: auto, " + available_names());
}

struct IsaWish {
    flashtile_isa isa = isa_from_environment();
};
constinit PerProcess<IsaWish> isa_wish;

// Sets whose one gain is a dot product of bf16.
bool is_bf16_dot(flashtile_isa isa) {
    return isa == FLASHTILE_ISA_AVX512_BF16 || isa == FLASHTILE_ISA_NEON_BF16;
}

// True if the bf16 dot product that this CPU has is faster than widening to fp32. Both ways multiply the same tile a
// few times.
bool time_bf16_pairs() {
    const auto best_time = [](const Set& set, DType dtype) {
        auto best = std::chrono::steady_clock::duration::max();
        for (int repeat = 0; repeat < 8; ++repeat) {
            const auto start = std::chrono::steady_clock::now();
            set.kernels().probe(dtype);
            best = std::min(best, std::chrono::steady_clock::now() - start);
        }
        return best;
    };
    for (const Set& set : kSets)
        if (is_bf16_dot(set.isa) && set.runs_here()) return best_time(set, DType::bf16) < best_time(set, DType::fp32);
    return false;
}

struct Bf16Pairs {
    bool win = time_bf16_pairs();
};
constinit PerProcess<Bf16Pairs> bf16_pairs;

// Why problems of a dtype do not get a set that nobody forces; "" where nothing speaks against it. The dtype is asked
// first: AMX is only for 16-bit types, and processes that compute in fp32 need not ask the operating system for
// permission to use tiles; the bf16 dot product is only for bf16, and is timed for nothing else.
const char* why_passed_over(const Set& set, DType dtype) {
    if (set.isa == FLASHTILE_ISA_AMX && dtype == DType::fp32) return "its tiles multiply no fp32";
    if (set.isa == FLASHTILE_ISA_AMX && dtype == DType::fp8_e4m3) return "its tiles multiply no e4m3";
    if (is_bf16_dot(set.isa) && dtype != DType::bf16 && dtype != DType::fp8_e4m3)
        return "its dot product takes bf16 alone";
    if (!set.runs_here()) return isa_why_not(set.isa);
    if (is_bf16_dot(set.isa) && !bf16_pairs.get().win)
        return "its dot product was timed, and is slower here than a product in fp32";
    return "";
}

flashtile_isa best_for(DType dtype) {
    for (auto set = kSets.rbegin(); set != kSets.rend(); ++set)
        if (*why_passed_over(*set, dtype) == '\0') return set->isa;
    return FLASHTILE_ISA_PORTABLE;
}

}  // namespace

const char* isa_name(flashtile_isa isa) {
    if (isa == FLASHTILE_ISA_AUTO) return "auto";
    const Set* set = find(isa);
    return set != nullptr ? set->name : "unknown";
}

bool isa_available(flashtile_isa isa) {
    const Set* set = find(isa);
    return isa == FLASHTILE_ISA_AUTO || (set != nullptr && set->runs_here());
}

const char* isa_why_not(flashtile_isa isa) {
    if (isa_available(isa)) return "";
    if (isa == FLASHTILE_ISA_AMX && isa_available(FLASHTILE_ISA_AVX512)) return why_no_tiles().c_str();
    return find(isa) != nullptr ? "the CPU lacks it" : "no such instruction set";
}

const Kernels& kernels_for(DType dtype, flashtile_isa forced) {
    if (forced != FLASHTILE_ISA_AUTO) return require(forced, "isa").kernels();
    const flashtile_isa wish = isa_wish.get().isa;
    return find(wish != FLASHTILE_ISA_AUTO ? wish : best_for(dtype))->kernels();
}

IsaReasons isa_reasons(DType dtype, flashtile_isa forced) {
    const flashtile_isa chosen = kernels_for(dtype, forced).isa;
    std::string order;
    if (forced != FLASHTILE_ISA_AUTO)
        order = "isa";
    else if (isa_wish.get().isa != FLASHTILE_ISA_AUTO)
        order = "FLASHTILE_ISA";
    if (!order.empty()) order += std::string(" is ") + isa_name(chosen);

    IsaReasons reasons{order.empty() ? "the fastest for the inputs' type that runs here" : order, {}};
    for (auto set = kSets.rbegin(); set != kSets.rend(); ++set) {
        if (set->isa == chosen) continue;
        const bool faster = find(chosen) < &*set;
        reasons.passed_over.emplace_back(set->name, !order.empty() ? order
                                                    : faster       ? why_passed_over(*set, dtype)
                                                                   : "a faster one serves");
    }
    return reasons;
}

}  // namespace flashtile::cpu
