// Compiled once for each instruction set, whose name GEMMA_ISA is. No std template is instantiated here: the linker
// might keep a copy that was compiled for a CPU newer than the one that runs it.
#include "kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace gemma {
namespace GEMMA_ISA {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t lanes = 16;
constexpr int row_tile = 6;  // 6 x 4 sums, 4 vectors of weights and one of x: 29 of 32 registers
#elif defined(__AVX2__)
constexpr std::size_t lanes = 8;
constexpr int row_tile = 2;  // of 16 registers
#else
constexpr std::size_t lanes = 4;
constexpr int row_tile = 2;
#endif
constexpr int output_tile = 4;

using Vector = float __attribute__((vector_size(lanes * 4)));

template <class To, class From>
inline To load(const From* from) {
    To to;
    __builtin_memcpy(&to, from, sizeof to);
    return to;
}

// What is multiplied at once: values of a row of x or of w, and how a vector of sums takes up their products.
struct Fp32 {
    using Value = float;
    using Vector = gemma::GEMMA_ISA::Vector;
    static constexpr std::size_t step = lanes;

    static Vector at(const float* values) { return load<Vector>(values); }
    static void add_product(Vector& sum, const Vector& x, const Vector& w) { sum += x * w; }
};

#if defined(__AVX512BF16__)
// The CPU's own product adds those of neighbours to one sum.
struct Bf16 {
    using Value = std::uint16_t;
    using Vector = __m512bh;
    static constexpr std::size_t step = 2 * lanes;

    static Vector at(const std::uint16_t* values) { return load<Vector>(values); }
    static void add_product(gemma::GEMMA_ISA::Vector& sum, const Vector& x, const Vector& w) {
        sum = _mm512_dpbf16_ps(sum, x, w);
    }
};
#else
struct Bf16 : Fp32 {
    using Value = std::uint16_t;

    // bf16 is the upper half of fp32. A loop, since compilers make better code of it than of __builtin_convertvector.
    static Vector at(const std::uint16_t* values) {
        std::uint32_t bits[lanes];
        for (std::size_t lane = 0; lane < lanes; ++lane) bits[lane] = static_cast<std::uint32_t>(values[lane]) << 16;
        return load<Vector>(bits);
    }
};
#endif

template <class Half, class Whole>
inline Half folded(const Whole& whole) {
    Half halves[2];
    __builtin_memcpy(halves, &whole, sizeof halves);
    return halves[0] + halves[1];
}

inline float sum(const Vector& vector) {
    using Eight = float __attribute__((vector_size(32)));
    using Four = float __attribute__((vector_size(16)));
    Four four;
    if constexpr (lanes == 16)
        four = folded<Four>(folded<Eight>(vector));
    else if constexpr (lanes == 8)
        four = folded<Four>(vector);
    else
        four = load<Four>(&vector);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Rows x outputs dot products side by side: every vector that is loaded serves several.
template <class Type, int rows>
inline void multiply_tile(const typename Type::Value* x, std::size_t inputs, const typename Type::Value* w, float* y,
                          std::size_t stride) {
    Vector sums[rows][output_tile] = {};
    for (std::size_t at = 0; at < inputs; at += Type::step) {
        typename Type::Vector weights[output_tile];
#pragma GCC unroll 8
        for (int n = 0; n < output_tile; ++n) weights[n] = Type::at(w + n * inputs + at);
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row) {
            const auto values = Type::at(x + row * inputs + at);
#pragma GCC unroll 8
            for (int n = 0; n < output_tile; ++n) Type::add_product(sums[row][n], values, weights[n]);
        }
    }
    for (int row = 0; row < rows; ++row)
        for (int n = 0; n < output_tile; ++n) y[row * stride + n] = sum(sums[row][n]);
}

// Whole tiles, then a smaller one for the rows that are left. The rows of x in a tile stay in the first cache while
// those of w pass by.
template <class Type, int tile>
inline void multiply_from(const typename Type::Value* x, std::size_t rows, std::size_t inputs,
                          const typename Type::Value* w, std::size_t outputs, float* y, std::size_t stride) {
    for (; rows >= tile; rows -= tile, x += tile * inputs, y += tile * stride)
        for (std::size_t n = 0; n < outputs; n += output_tile)
            multiply_tile<Type, tile>(x, inputs, w + n * inputs, y + n, stride);
    if constexpr (tile > 1) multiply_from<Type, tile - 1>(x, rows, inputs, w, outputs, y, stride);
}

template <class Type>
void multiply(const typename Type::Value* x, std::size_t rows, std::size_t inputs, const typename Type::Value* w,
              std::size_t outputs, float* y, std::size_t stride) {
    multiply_from<Type, row_tile>(x, rows, inputs, w, outputs, y, stride);
}

// To a few units of the last place, and of a form that compilers turn into vectors: 2^n from the exponent's bits, times
// the series of 2^f for |f| <= 1/2.
inline float exponential(float x) {
    constexpr float log2_e = 1.44269504f, round_here = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float scaled = clamped * log2_e;
    const float whole = (scaled + round_here) - round_here;
    const float f = scaled - whole;
    const float series =
        1 + f * (0.693147181f +
                 f * (0.240226507f +
                      f * (0.0555041087f + f * (0.00961812911f + f * (0.00133335581f + f * 0.000154035304f)))));
    const auto exponent = (static_cast<std::int32_t>(whole) + 127) << 23;
    float power;
    __builtin_memcpy(&power, &exponent, sizeof power);
    return series * power;
}

void geglu(const float* gate, const float* up, float* out, std::size_t size) {
    constexpr float sqrt_8_over_pi = 1.59576912f;  // x (1 + tanh u) / 2 is x / (1 + exp(-2 u))
    for (std::size_t n = 0; n < size; ++n) {
        const float x = gate[n];
        out[n] = up[n] * x / (1 + exponential(-sqrt_8_over_pi * (x + 0.044715f * x * x * x)));
    }
}

#define GEMMA_NAME_OF(isa) #isa
#define GEMMA_NAME(isa) GEMMA_NAME_OF(isa)

}  // namespace

extern const Kernels table;
const Kernels table = {
    GEMMA_NAME(GEMMA_ISA),
    multiply<Fp32>,
    multiply<Bf16>,
    geglu,
};

}  // namespace GEMMA_ISA
}  // namespace gemma
