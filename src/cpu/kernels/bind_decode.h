// bind_decode.h: which arithmetic a dtype gets, and decode's entries of a table of kernels. bind.h includes it, and so
// does a unit that is compiled for more than its set has to be for the sake of these entries.
#pragma once

#include "cpu/isa/bf16_math.h"
#include "cpu/kernels/decode.h"
#if defined(FLASHTILE_COUNTED)
#include "cpu/isa/counted_math.h"
#endif

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// Which arithmetic a dtype gets: pairs of bf16 where the instruction set has their dot product, else fp32.
template <class F>
inline auto with_vectors([[maybe_unused]] DType dtype, F f) {
#if defined(FLASHTILE_BF16_DOT)
    if (dtype == DType::bf16) return f(Bf16Math{});
#endif
#if defined(FLASHTILE_COUNTED)
    return f(CountedMath{});
#else
    return f(Fp32Math{});
#endif
}

// The same for decode, which widens e4m3 to bf16 as it reads it.
template <class F>
inline auto with_decode_math(const Problem& p, F f) {
#if defined(FLASHTILE_BF16_DOT)
    if (p.has_e4m3() && p.dtype == DType::fp16) return f(SplitBf16Math{});
#endif
    return with_vectors(p.has_e4m3() ? DType::bf16 : p.dtype_of_k(), f);
}

// batch_invariant: calls with up to 64 queries are one class, in which a row has the same bits (docs/semantics.md).
// Else: a panel of forward() has work for kPanel queries, of which a few leave most lanes idle.
inline int64_t decode_queries(const Problem& p) {
    constexpr int64_t kFew = kPanel / 4;
    return p.batch_invariant ? KeySplits::kMostQueries : kFew;
}

inline int64_t part_floats(const Problem& p) {
    return with_decode_math(p, [&]<class Math>(Math) { return Decode<Math>::part_floats(p); });
}

inline std::size_t decode_scratch(const Problem& p) {
    return with_decode_math(p, [&]<class Math>(Math) { return Decode<Math>::scratch_bytes(p); });
}

inline void decode(const Problem& p, const Operands& x, const cpu::DecodeState& state, const cpu::KeyRange& range,
                   std::byte* scratch) {
    with_decode_math(p, [&]<class Math>(Math) { Decode<Math>(p, x, state, scratch).run(range); });
}

inline void combine(const Problem& p, const Operands& x, const cpu::DecodeState& state, int64_t b, int64_t h,
                    std::byte* scratch) {
    with_decode_math(p, [&]<class Math>(Math) { Decode<Math>(p, x, state, scratch).combine(b, h); });
}

// These kernels, with decode's entries of this unit.
inline cpu::Kernels with_decode_of_this_unit(cpu::Kernels kernels) {
    kernels.part_floats = part_floats;
    kernels.decode_scratch = decode_scratch;
    kernels.decode = decode;
    kernels.combine = combine;
    return kernels;
}

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
