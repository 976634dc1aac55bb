// function.h: evaluates a user's score or mask function on one panel of S^T. A program's operations are done one after
// the other, each for kElements elements of the tile, so that choosing an operation costs little beside doing it.
#pragma once

#include "cpu/kernels/head.h"
#include "functions/program.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

// e^x. x = n log 2 + r, and e^r is a polynomial; 2^n in two factors, since n goes past fp32's exponents.
inline Vec exp(Vec x) {
    const Vec capped = x > 89.0f ? broadcast(89.0f) : (x < -105.0f ? broadcast(-105.0f) : x);  // NaN stays
    constexpr float kMagic = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
    const Vec n = rounded(rounded(capped * kLog2e) + kMagic) - kMagic;
    const Vec r = capped - n * 0.693359375f + n * 2.12194440e-4f;
    Vec p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const Vec fraction = p * r * r + r + 1.0f;
    const IntVec whole = __builtin_convertvector(capped == capped ? n : Vec{}, IntVec);
    const IntVec half = whole >> 1;
    const Vec first = reinterpret_cast<Vec>((half + 127) << 23);
    const Vec second = reinterpret_cast<Vec>((whole - half + 127) << 23);
    return fraction * first * second;
}

// The natural logarithm. x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m is a polynomial in m - 1.
inline Vec log(Vec x) {
    const IntVec small = x < 1.17549435e-38f;
    const Vec normal = small ? x * 8388608.0f : x;
    const auto bits = reinterpret_cast<IntVec>(normal);
    IntVec e = (bits >> 23) - (small ? broadcast_int(149) : broadcast_int(126));
    Vec m = reinterpret_cast<Vec>((bits & 0x7fffff) | 0x3f000000);  // in [1/2, 1)
    const IntVec low = m < 0.707106781186547524f;
    e = low ? e - 1 : e;
    m = (low ? m + m : m) - 1.0f;
    const Vec z = m * m;
    Vec p = broadcast(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const Vec exponent = __builtin_convertvector(e, Vec);
    const Vec y = p * m * z - exponent * 2.12194440e-4f - 0.5f * z;
    const Vec result = m + y + exponent * 0.693359375f;
    const Vec infinity = broadcast(__builtin_inff());
    const Vec outside = x == 0.0f ? -infinity : (x == infinity ? infinity : broadcast(__builtin_nanf("")));
    return ((x > 0.0f) & (x < infinity)) ? result : outside;
}

constexpr int64_t kElements = 256;  // of a buffer: a multiple of kPanel; no block has more keys

// Elements of 8 bytes that the functions with this number need.
inline int64_t function_scratch(int number) {
    return functions::most_buffers(number) * kElements;
}

// Int is int32_t where that holds every int of the head's functions, else int64_t.
template <class Int>
class FunctionTile {
    using Op = functions::Op;
    using Type = functions::Type;
    using Step = functions::Step;
    using Program = functions::Program;

public:
    // `memory` has room for function_scratch(). Rows are the keys [j0, j0 + keys), lanes the queries from i0 on, and s
    // are the scores.
    FunctionTile(const Head& head, const Program& program, const float* s, int64_t i0, int64_t j0, int64_t keys,
                 int64_t* memory)
        : head_(head), program_(program), s_(s), memory_(memory), i0_(i0), j0_(j0), keys_(keys) {
        run(0, program.end[0], 1);
        repeat(0, program.end[0]);
        run(program.end[0], program.end[1], kPanel);
        repeat(program.end[0], program.end[1]);
        run(program.end[1], program.end[2], keys);
    }

    static constexpr int64_t kRows = kElements / kPanel;

    // The rows from `row` on, kRows of them or as many as are left. The results are then at result() and derivative().
    void evaluate(int64_t row) {
        first_ = row * kPanel;
        const int64_t rows = lesser(kRows, keys_ - row);
        for (int n = program_.end[1]; n < program_.end[2]; ++n)
            if (program_.steps[n].expanded >= 0) expand(program_.steps[n], row, rows);
        run(program_.end[2], program_.end[3], rows * kPanel);
    }
    const float* result() const { return inputs<float>(program_.result); }
    const int32_t* mask() const { return inputs<int32_t>(program_.result); }
    const float* derivative() const { return inputs<float>(program_.derivative); }
    // Calls add(n, tensor, index, d) for elements n below `count` and the loads in them that lie inside of a tensor
    // whose gradient is asked for, d being the derivative by the load.
    template <class Add>
    void each_load(int64_t count, const functions::TensorGradient* wanted, Add add) const {
        for (int l = 0; l < program_.load_count; ++l) {
            const functions::LoadDerivative& one = program_.loads[l];
            if (!wanted[one.tensor]) continue;
            const functions::FunctionTensor& tensor = head_.functions.tensors[one.tensor];
            const float* derivative = inputs<float>(one.derivative);
            const Int* at[functions::kMostDimensions] = {};
            for (int d = 0; d < one.rank; ++d) at[d] = inputs<Int>(one.index[d]);
            for (int64_t n = 0; n < count; ++n) {
                int64_t index = 0;  // in the tensor's shape, row-major
                bool inside = true;
                for (int d = 0; d < one.rank; ++d) {
                    inside &= at[d][n] >= 0 && at[d][n] < tensor.shape[d];
                    index = index * tensor.shape[d] + at[d][n];
                }
                if (inside) add(n, one.tensor, index, derivative[n]);
            }
        }
    }

private:
    // The compiler does not see that buffers lie beside each other: g++ 12 else writes one by its distance from
    // another, takes the function that does so for one without effect, and leaves its calls out.
    template <class T>
    T* values(int buffer) const {
        T* first = reinterpret_cast<T*>(memory_ + buffer * kElements);
        asm("" : "+r"(first));
        return first;
    }

    // What a step reads. s is read where it lies.
    template <class T>
    const T* inputs(int buffer) const {
        if constexpr (__is_same(T, float))
            if (buffer == program_.given) return s_ + first_;
        return values<T>(buffer);
    }

    // Steps [first, end) for `count` elements.
    void run(int first, int end, int64_t count) {
        for (int n = first; n < end; ++n) {
            const Step& step = program_.steps[n];
            switch (step.type) {
                case Type::boolean:
                    boolean(step, count);
                    break;
                case Type::integer:
                    integer(step, count);
                    break;
                case Type::real:
                    real(step, count);
                    break;
            }
        }
    }
    template <class Of>
    void with_values(const Step& step, int buffer, Of of) {
        if (step.type == Type::real) return of(values<float>(buffer));
        if (step.type == Type::integer) return of(values<Int>(buffer));
        of(values<int32_t>(buffer));
    }
    // Fills buffers with a value each, or with a row's.
    void repeat(int first, int end) {
        for (int n = first; n < end; ++n)
            if (program_.steps[n].expanded >= 0) repeat(program_.steps[n]);
    }
    void repeat(const Step& step) {
        with_values(step, step.out, [&]<class T>(T* x) {
            T row[kPanel];
            for (int64_t n = 0; n < kPanel; ++n) row[n] = x[step.stage == functions::Stage::row ? n : 0];
            for (int64_t first = 0; first < kElements; first += kPanel)
                for (int64_t n = 0; n < kPanel; ++n) x[first + n] = row[n];
        });
    }
    void expand(const Step& step, int64_t row, int64_t rows) {
        with_values(step, step.out, [&]<class T>(const T* of_keys) {
            T* of_elements = values<T>(step.expanded);
            for (int64_t j = 0; j < rows; ++j) {
                const T of_key = of_keys[row + j];
                for (int64_t lane = 0; lane < kPanel; ++lane) of_elements[j * kPanel + lane] = of_key;
            }
        });
    }

    template <class In, class Out, class Of>
    void each(const Step& step, int64_t count, Of of) {
        const In* a = inputs<In>(step.argument[0]);
        Out* out = values<Out>(step.out);
        for (int64_t n = 0; n < count; ++n) out[n] = of(a[n]);
    }
    template <class In, class Out, class Of>
    void pairs(const Step& step, int64_t count, Of of) {
        const In *a = inputs<In>(step.argument[0]), *b = inputs<In>(step.argument[1]);
        Out* out = values<Out>(step.out);
        for (int64_t n = 0; n < count; ++n) out[n] = of(a[n], b[n]);
    }
    template <class T>
    void select(const Step& step, int64_t count) {
        const int32_t* condition = inputs<int32_t>(step.argument[0]);
        const T *yes = inputs<T>(step.argument[1]), *no = inputs<T>(step.argument[2]);
        T* out = values<T>(step.out);
        for (int64_t n = 0; n < count; ++n) out[n] = condition[n] != 0 ? yes[n] : no[n];
    }
    template <class T>
    void fill(const Step& step, int64_t count, T value) {
        T* out = values<T>(step.out);
        for (int64_t n = 0; n < count; ++n) out[n] = value;
    }

    template <class In>
    void compare(const Step& step, int64_t count) {
        switch (step.op) {
            case Op::less:
                return pairs<In, int32_t>(step, count, [](In a, In b) { return a < b; });
            case Op::less_equal:
                return pairs<In, int32_t>(step, count, [](In a, In b) { return a <= b; });
            case Op::equal:
                return pairs<In, int32_t>(step, count, [](In a, In b) { return a == b; });
            default:
                return pairs<In, int32_t>(step, count, [](In a, In b) { return a != b; });
        }
    }

    void boolean(const Step& step, int64_t count) {
        switch (step.op) {
            case Op::constant:
                return fill<int32_t>(step, count, step.integer != 0 ? 1 : 0);
            case Op::load:
                return load<int32_t>(step, count);
            case Op::select:
                return select<int32_t>(step, count);
            case Op::convert:
                if (step.of == Type::real) return each<float, int32_t>(step, count, [](float a) { return a != 0; });
                return each<Int, int32_t>(step, count, [](Int a) { return a != 0; });
            case Op::bit_and:
                return pairs<int32_t, int32_t>(step, count, [](int32_t a, int32_t b) { return a & b; });
            case Op::bit_or:
                return pairs<int32_t, int32_t>(step, count, [](int32_t a, int32_t b) { return a | b; });
            case Op::bit_xor:
                return pairs<int32_t, int32_t>(step, count, [](int32_t a, int32_t b) { return a ^ b; });
            case Op::bit_not:
                return each<int32_t, int32_t>(step, count, [](int32_t a) { return a ^ 1; });
            default:
                if (step.of == Type::real) return compare<float>(step, count);
                if (step.of == Type::integer) return compare<Int>(step, count);
                return compare<int32_t>(step, count);
        }
    }

    // Integers wrap: sums and products are taken of unsigned ones.
    static uint32_t bits(int32_t x) { return static_cast<uint32_t>(x); }
    static uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }
    static int32_t wrapped(uint32_t x) { return static_cast<int32_t>(x); }
    static int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }
    static constexpr Int kCounts = sizeof(Int) * 8 - 1;  // of shifts
    static Int floor_divided(Int a, Int b) {
        if (b == 0) return 0;
        if (b == -1) return wrapped(0 - bits(a));
        const Int quotient = a / b;
        return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    }
    static Int remainder(Int a, Int b) {
        if (b == 0 || b == -1) return 0;
        const Int rest = a % b;
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    static Int truncated(float x) {
        return x >= -0x1p63f && x < 0x1p63f ? static_cast<Int>(static_cast<int64_t>(x)) : 0;  // NaN fails both
    }

    void integer(const Step& step, int64_t count) {
        using I = Int;
        switch (step.op) {
            case Op::constant:
                return fill<I>(step, count, static_cast<I>(step.integer));
            case Op::b:
                return fill<I>(step, count, static_cast<I>(head_.place_b));
            case Op::h:
                return fill<I>(step, count, static_cast<I>(head_.place_h));
            case Op::seqlen_q:
                return fill<I>(step, count, static_cast<I>(head_.seqlen_q));
            case Op::seqlen_k:
                return fill<I>(step, count, static_cast<I>(head_.seqlen_k));
            case Op::i:
                return ascending(step, count, head_.origin_i + i0_);
            case Op::j:
                return ascending(step, count, head_.origin_j + j0_);
            case Op::load:
                return load<I>(step, count);
            case Op::select:
                return select<I>(step, count);
            case Op::convert:
                if (step.of == Type::real) return each<float, I>(step, count, truncated);
                return each<int32_t, I>(step, count, [](int32_t a) { return I{a}; });
            case Op::add:
                return pairs<I, I>(step, count, [](I a, I b) { return wrapped(bits(a) + bits(b)); });
            case Op::subtract:
                return pairs<I, I>(step, count, [](I a, I b) { return wrapped(bits(a) - bits(b)); });
            case Op::multiply:
                return pairs<I, I>(step, count, [](I a, I b) { return wrapped(bits(a) * bits(b)); });
            case Op::floor_divide:
                return pairs<I, I>(step, count, floor_divided);
            case Op::remainder:
                return pairs<I, I>(step, count, remainder);
            case Op::negate:
                return each<I, I>(step, count, [](I a) { return wrapped(0 - bits(a)); });
            case Op::minimum:
                return pairs<I, I>(step, count, [](I a, I b) { return b < a ? b : a; });
            case Op::maximum:
                return pairs<I, I>(step, count, [](I a, I b) { return a < b ? b : a; });
            case Op::absolute:
                return each<I, I>(step, count, [](I a) { return a < 0 ? wrapped(0 - bits(a)) : a; });
            case Op::shift_left:
                return pairs<I, I>(step, count, [](I a, I b) { return wrapped(bits(a) << (b & kCounts)); });
            case Op::shift_right:
                return pairs<I, I>(step, count, [](I a, I b) { return a >> (b & kCounts); });
            case Op::bit_and:
                return pairs<I, I>(step, count, [](I a, I b) { return a & b; });
            case Op::bit_or:
                return pairs<I, I>(step, count, [](I a, I b) { return a | b; });
            case Op::bit_xor:
                return pairs<I, I>(step, count, [](I a, I b) { return a ^ b; });
            default:
                return each<I, I>(step, count, [](I a) { return ~a; });
        }
    }
    void ascending(const Step& step, int64_t count, int64_t first) {
        Int* out = values<Int>(step.out);
        for (int64_t n = 0; n < count; ++n) out[n] = static_cast<Int>(first + n);
    }

    void real(const Step& step, int64_t count) {
        switch (step.op) {
            case Op::constant:
                return fill<float>(step, count, step.real);
            case Op::s:
                return;  // lies there already: inputs()
            case Op::load:
                return load<float>(step, count);
            case Op::select:
                return select<float>(step, count);
            case Op::convert:
                if (step.of == Type::integer)
                    return each<Int, float>(step, count, [](Int a) { return static_cast<float>(a); });
                return each<int32_t, float>(step, count, [](int32_t a) { return static_cast<float>(a); });
            case Op::add:
                return pairs<float, float>(step, count, [](float a, float b) { return a + b; });
            case Op::subtract:
                return pairs<float, float>(step, count, [](float a, float b) { return a - b; });
            case Op::multiply:
                return pairs<float, float>(step, count, [](float a, float b) { return a * b; });
            case Op::divide:
                return pairs<float, float>(step, count, [](float a, float b) { return a / b; });
            case Op::negate:
                return each<float, float>(step, count, [](float a) { return -a; });
            case Op::minimum:
                return pairs<float, float>(step, count, [](float a, float b) { return b < a ? b : a; });
            case Op::maximum:
                return pairs<float, float>(step, count, [](float a, float b) { return a < b ? b : a; });
            case Op::absolute:
                return each<float, float>(step, count, [](float a) { return __builtin_fabsf(a); });
            case Op::sqrt:
                return each<float, float>(step, count, [](float a) { return __builtin_sqrtf(a); });
            case Op::exp:
                return vectors(step, count, [](Vec x) { return exp(x); });
            case Op::log:
                return vectors(step, count, [](Vec x) { return log(x); });
            default:
                return vectors(step, count, [](Vec x) { return tanh(x); });
        }
    }
    // Buffers have room for whole vectors.
    template <class Of>
    void vectors(const Step& step, int64_t count, Of of) {
        const float* a = inputs<float>(step.argument[0]);
        float* out = values<float>(step.out);
        for (int64_t n = 0; n < count; n += kLanes) flashtile::store(out + n, of(flashtile::load(a + n)));
    }

    // Elements of a tensor; outside of it they are 0.
    template <class T>
    void load(const Step& step, int64_t count) {
        const functions::FunctionTensor& tensor = head_.functions.tensors[step.tensor];
        const Int* index[functions::kMostDimensions] = {};
        for (int n = 0; n < step.rank; ++n) index[n] = inputs<Int>(step.argument[n]);
        T* out = values<T>(step.out);
        for (int64_t n = 0; n < count; ++n) {
            int64_t offset = 0;
            bool inside = true;
            for (int d = 0; d < step.rank; ++d) {
                const int64_t at = index[d][n];
                inside &= at >= 0 && at < tensor.shape[d];
                offset += (inside ? at : 0) * tensor.stride[d];
            }
            out[n] = inside ? element<T>(tensor, offset) : T{};
        }
    }
    template <class T>
    static T element(const functions::FunctionTensor& tensor, int64_t offset) {
        switch (static_cast<DType>(tensor.dtype)) {
            case DType::int32:
                return static_cast<T>(static_cast<const int32_t*>(tensor.data)[offset]);
            case DType::int64:
                return static_cast<T>(static_cast<const int64_t*>(tensor.data)[offset]);
            default:  // a bool, as 0 and 1, or a float
                return static_cast<T>(load_element(static_cast<DType>(tensor.dtype), tensor.data, offset));
        }
    }

    const Head& head_;
    const Program& program_;
    const float* s_;
    int64_t* memory_;
    int64_t i0_, j0_, keys_;
    int64_t first_ = 0;  // of the scores at work
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile
