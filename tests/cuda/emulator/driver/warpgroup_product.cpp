// warpgroup_product.cpp: see warpgroup_product.h. Tiles lie in shared memory with the 128-byte swizzle.
#include "emulator/driver/warpgroup_product.h"

#include <algorithm>
#include <cstring>

#include "emulator/driver/collective.h"
#include "emulator/driver/element.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

// An element of a tile whose descriptor this is: `outer` counts rows of A or columns of B, `inner` the dimension that
// is summed over. Neighbours in the outer dimension lie side by side if it is transposed.
float element_at(const WarpgroupProduct& any, unsigned long long descriptor, bool transposed, unsigned outer,
                 unsigned inner) {
    const auto field = [&](int first) { return static_cast<unsigned>(descriptor >> first & 0x3FFF) << 4; };
    const unsigned size = any.e4m3 ? 1 : 2, chunk = 128 / size;
    const unsigned row = transposed ? inner : outer, column = transposed ? outer : inner;
    const unsigned place =
        field(0) + column / chunk * field(16) + row / 8 * field(32) + row % 8 * 128 + column % chunk * size;
    unsigned short bits = 0;
    std::memcpy(&bits, shared_at(grid().block(), place ^ (place >> 3 & 0x70), size, size), size);
    return any.e4m3 ? from_e4m3(bits) : from_element(bits, any.bf16);
}

// K is how many columns of A an instruction takes: 32 bytes of a row. A register has `kPacked` of them.
template <unsigned K>
void multiply(Gathering& lanes, const WarpgroupProduct& any) {
    constexpr unsigned kPacked = K / 8;
    const unsigned first_row = grid().lane().warp->number % 4 * 16;
    float a[16][K];
    for (unsigned n = 0; n < 32; ++n)
        for (unsigned word = 0; word < 4; ++word)
            for (unsigned e = 0; e < kPacked; ++e) {
                const unsigned m = n / 4 + word % 2 * 8, k = n % 4 * kPacked + word / 2 * (K / 2) + e;
                const unsigned* own = lanes.of<WarpgroupProduct>(n)->a;
                if (own == nullptr)
                    a[m][k] = element_at(any, any.shared_a, any.transposed_a, first_row + m, k);
                else if (any.e4m3)
                    a[m][k] = from_e4m3(own[word] >> 8 * e & 0xFF);
                else
                    a[m][k] = half_of(own[word], static_cast<int>(e), any.bf16);
            }
    for (unsigned eight = 0; eight < static_cast<unsigned>(any.columns) / 8; ++eight) {
        Row b[K], c[16];
        const auto each = [&](auto body) {
            for (unsigned n = 0; n < 32; ++n)
                for (unsigned e = 0; e < 4; ++e)
                    body(lanes.of<WarpgroupProduct>(n)->d[eight * 4 + e], c[n / 4 + e / 2 * 8][n % 4 * 2 + e % 2]);
        };
        for (unsigned k = 0; k < K; ++k)
            for (unsigned n = 0; n < 8; ++n)
                b[k][n] = element_at(any, any.shared_b, any.transposed_b, eight * 8 + n, k);
        each([&](float own, auto&& sum) { sum = any.add ? own : 0.0f; });
        add_product(c, a, b);
        each([](float& own, float sum) { own = sum; });
    }
}

const Collective kProduct{"wgmma", [](Gathering& lanes) {
                              if (lanes.arrived != ~0u) grid().fail("comes to wgmma without a whole warp");
                              const WarpgroupProduct& any = *lanes.of<WarpgroupProduct>(0);
                              if (any.shared_b >> 62 != 1)
                                  grid().fail("uses wgmma with another swizzle than that of 128 bytes");
                              any.e4m3 ? multiply<32>(lanes, any) : multiply<16>(lanes, any);
                          }};

}  // namespace

void wgmma(const WarpgroupProduct& product) {
    Lane& lane = grid().lane();
    grid().progress();
    lane.products.push_back({product, lane.product_group});
    grid().pause();
}

void wgmma_commit() {
    grid().progress();
    ++grid().lane().product_group;
}

void wgmma_wait(int pending) {
    Lane& lane = grid().lane();
    const unsigned end = lane.product_group - std::min(lane.product_group, static_cast<unsigned>(pending));
    while (!lane.products.empty() && lane.products.front().group < end) {
        WarpgroupProduct own = lane.products.front().product;
        lane.products.pop_front();
        gather(kProduct, ~0u, &own);
    }
    grid().progress();
    lane.products_done = end;
    // A product is that of four warps: one has not ended before the others have.
    const Warp* first = &lane.block->warps[lane.warp->number / 4 * 4];
    const auto done = [&](const Warp& warp) {
        return std::all_of(warp.lanes, warp.lanes + 32, [&](const Lane& l) { return l.products_done >= end; });
    };
    while (!std::all_of(first, first + 4, done)) grid().rest();
}

}  // namespace emulator
