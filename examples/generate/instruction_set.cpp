#include "kernels.h"

namespace gemma {

namespace portable {
extern const Kernels table;
}
#if defined(GEMMA_X86)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
namespace avx512_bf16 {
extern const Kernels table;
}
#endif

namespace {

std::vector<const Kernels*> find_available() {
    std::vector<const Kernels*> found;
#if defined(GEMMA_X86)
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (has_avx512 && __builtin_cpu_supports("avx512bf16")) found.push_back(&avx512_bf16::table);
    if (has_avx512) found.push_back(&avx512::table);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2::table);
#endif
    found.push_back(&portable::table);
    return found;
}

}  // namespace

const std::vector<const Kernels*>& available_kernels() {
    static const auto available = find_available();
    return available;
}

const Kernels& kernels() {
    static const Kernels& best = *available_kernels().front();
    return best;
}

}  // namespace gemma
