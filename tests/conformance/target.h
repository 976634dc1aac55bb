// target.h: where a case runs: on an instruction set of the CPU, or on a GPU.
#pragma once

#include <flashtile/flashtile.hpp>
#include <string>

namespace flashtile::conformance {

struct Target {
    Target(isa on_cpu) : which(on_cpu) {}

    device where = cpu;
    isa which = isa::automatic;

    bool on_gpu() const { return where.type == FLASHTILE_CUDA; }
};

// The instruction sets that there are.
inline constexpr isa kIsas[] = {isa::portable, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx, isa::neon_bf16};

inline Target cuda_target() {
    Target target = isa::automatic;
    target.where = cuda();
    return target;
}

std::string name(const Target& target);  // "avx2", "cuda"

// Why this machine cannot run it, or "".
std::string why_not(const Target& target);

}  // namespace flashtile::conformance
