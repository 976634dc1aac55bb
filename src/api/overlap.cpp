// overlap.cpp: an exact search for a common element. Both views are runs of contiguous bytes at positions
// sum(index_n * stride_n); they meet where the difference of two positions falls within the runs. The search fixes one
// index at a time, largest stride first, and prunes what the smaller strides cannot bring back, which for nested
// strides leaves two or three candidates a level.
#include "api/overlap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/problem.h"

namespace flashtile::api {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 47;  // no address space has more

__extension__ using Wide = __int128;

struct Term {
    Wide stride;  // bytes, positive
    Wide low;     // the index runs over [low, high]
    Wide high;
};

struct Search {
    std::array<Term, 2 * FLASHTILE_MAX_RANK> terms{};
    int count = 0;
    int budget = 100000;

    // Whether some sum of the terms from `level` on lies within [low, high].
    bool reaches(int level, Wide low, Wide high) {
        if (--budget < 0) return true;
        if (level == count) return low <= 0 && 0 <= high;
        Wide rest_low = 0, rest_high = 0;
        for (int n = level + 1; n < count; ++n) {
            rest_low += terms[static_cast<std::size_t>(n)].stride * terms[static_cast<std::size_t>(n)].low;
            rest_high += terms[static_cast<std::size_t>(n)].stride * terms[static_cast<std::size_t>(n)].high;
        }
        const Term& term = terms[static_cast<std::size_t>(level)];
        const Wide first = std::max(term.low, divide_up(low - rest_high, term.stride));
        const Wide last = std::min(term.high, divide_down(high - rest_low, term.stride));
        for (Wide index = first; index <= last; ++index)
            if (reaches(level + 1, low - index * term.stride, high - index * term.stride)) return true;
        return false;
    }

    void add(Wide stride, Wide low, Wide high) {
        if (stride == 0 || low == high) return;
        terms[static_cast<std::size_t>(count++)] = stride > 0 ? Term{stride, low, high} : Term{-stride, -high, -low};
    }
    void sort() {
        std::sort(terms.begin(), terms.begin() + count,
                  [](const Term& a, const Term& b) { return a.stride > b.stride; });
    }

    static Wide divide_down(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
    static Wide divide_up(Wide a, Wide b) { return -divide_down(-a, b); }
};

// The contiguous run that the innermost dimension makes, in bytes, and the dimensions outside it.
struct Runs {
    Wide bytes;
    int outer;
};

Runs runs(const flashtile_tensor& t) {
    const Wide size = size_of(static_cast<DType>(t.dtype));
    if (t.rank == 0) return {size, 0};
    const int last = t.rank - 1;
    if (t.stride[last] == 1 || t.shape[last] == 1) return {size * t.shape[last], last};
    return {size, t.rank};
}

bool empty(const flashtile_tensor& t) {
    return std::any_of(t.shape, t.shape + t.rank, [](std::int64_t n) { return n == 0; });
}

// Bytes from the first element to past the last one. Strides are not negative and the sum does not overflow:
// TensorArgument::check_form has checked both.
std::uintptr_t extent(const flashtile_tensor& t) {
    std::int64_t last = 0;
    for (int n = 0; n < t.rank; ++n)
        if (t.shape[n] > 1) last += t.stride[n] * (t.shape[n] - 1);
    return static_cast<std::uintptr_t>((last + 1) * size_of(static_cast<DType>(t.dtype)));
}

// True for almost all views: each stride reaches past everything that the smaller strides span.
bool nested(const flashtile_tensor& t) {
    struct Dimension {
        std::int64_t stride, shape;
    };
    std::array<Dimension, FLASHTILE_MAX_RANK> outward;
    int count = 0;
    for (int n = 0; n < t.rank; ++n) {
        if (t.shape[n] == 1) continue;
        int at = count++;
        for (; at > 0 && outward[static_cast<std::size_t>(at - 1)].stride > t.stride[n]; --at)
            outward[static_cast<std::size_t>(at)] = outward[static_cast<std::size_t>(at - 1)];
        outward[static_cast<std::size_t>(at)] = {t.stride[n], t.shape[n]};
    }
    std::int64_t reach = 1;
    for (int n = 0; n < count; ++n) {
        const Dimension& dimension = outward[static_cast<std::size_t>(n)];
        if (dimension.stride < reach) return false;
        reach += dimension.stride * (dimension.shape - 1);
    }
    return true;
}

}  // namespace

bool overlap(const flashtile_tensor& a, const flashtile_tensor& b) {
    if (empty(a) || empty(b)) return false;
    const auto at_a = reinterpret_cast<std::uintptr_t>(a.data), at_b = reinterpret_cast<std::uintptr_t>(b.data);
    if (at_a < at_b ? at_b - at_a >= extent(a) : at_a - at_b >= extent(b)) return false;  // the usual case
    const Runs run_a = runs(a), run_b = runs(b);
    const Wide size_a = size_of(static_cast<DType>(a.dtype)), size_b = size_of(static_cast<DType>(b.dtype));
    Search search;
    for (int n = 0; n < run_a.outer; ++n) search.add(a.stride[n] * size_a, 0, a.shape[n] - 1);
    for (int n = 0; n < run_b.outer; ++n) search.add(b.stride[n] * size_b, 1 - b.shape[n], 0);
    search.sort();
    // position_a - position_b lies in (-run_a, run_b) where the runs meet
    const Wide base = static_cast<Wide>(reinterpret_cast<std::uintptr_t>(b.data)) -
                      static_cast<Wide>(reinterpret_cast<std::uintptr_t>(a.data));
    return search.reaches(0, base - run_a.bytes + 1, base + run_b.bytes - 1);
}

bool overlaps_bytes(const flashtile_tensor& a, const void* start, std::size_t size) {
    flashtile_tensor bytes{};
    bytes.data = const_cast<void*>(start);
    bytes.dtype = FLASHTILE_BOOL;
    bytes.rank = 1;
    bytes.shape[0] = static_cast<std::int64_t>(std::min(size, kMostBytes));
    bytes.stride[0] = 1;
    return overlap(a, bytes);
}

bool overlaps_itself(const flashtile_tensor& a) {
    if (empty(a) || nested(a)) return false;
    const Runs run = runs(a);
    const Wide size = size_of(static_cast<DType>(a.dtype));
    // Two different indices are equal in all dimensions before some `first`, and differ there by at least 1.
    for (int first = 0; first < run.outer; ++first) {
        if (a.shape[first] == 1) continue;
        if (a.stride[first] == 0) return true;
        Search search;
        const Wide step = static_cast<Wide>(a.stride[first]) * size;
        // differ by 1 + x, x in [0, shape - 2]
        search.add(step, 0, a.shape[first] - 2);
        for (int n = first + 1; n < run.outer; ++n) search.add(a.stride[n] * size, 1 - a.shape[n], a.shape[n] - 1);
        search.sort();
        if (search.reaches(0, -step - run.bytes + 1, -step + run.bytes - 1)) return true;
    }
    return false;
}

bool same_elements(const flashtile_tensor& a, const flashtile_tensor& b) {
    if (a.data != b.data || a.dtype != b.dtype) return false;
    for (int n = 0; n < a.rank; ++n)
        if (a.shape[n] > 1 && a.stride[n] != b.stride[n]) return false;
    return true;
}

}  // namespace flashtile::api
