// warp_functions.cpp: see warp_functions.h. Fragments lie as the PTX instruction set says: lane 4 g + t has rows g and
// g + 8, and columns 2 t and 2 t + 1 of each eight.
#include "emulator/driver/warp_functions.h"

#include <cstring>

#include "emulator/driver/collective.h"
#include "emulator/driver/element.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/shared_memory.h"

namespace emulator {
namespace {

struct Shuffle {
    unsigned x, from, result;
};
const Collective kShuffle{"a shuffle", [](Gathering& lanes) {
                              for (unsigned n = 0; n < 32; ++n) {
                                  auto* own = lanes.of<Shuffle>(n);
                                  if (own == nullptr) continue;
                                  const auto* other = lanes.of<Shuffle>(own->from % 32);
                                  own->result = other != nullptr ? other->x : 0xFFC0DEADu;  // undefined there
                              }
                          }};

struct Ballot {
    bool x;
    unsigned result;
};
const Collective kBallot{"a vote", [](Gathering& lanes) {
                             unsigned all = 0;
                             for (unsigned n = 0; n < 32; ++n)
                                 if (const auto* own = lanes.of<Ballot>(n); own != nullptr && own->x) all |= 1u << n;
                             for (unsigned n = 0; n < 32; ++n)
                                 if (auto* own = lanes.of<Ballot>(n)) own->result = all;
                         }};

const Collective kSyncWarp{"__syncwarp", [](Gathering&) {}};

void require_all(const Gathering& lanes) {
    if (lanes.arrived != ~0u) grid().fail(std::string("comes to ") + lanes.kind->name + " without a whole warp");
}

struct Matrices {
    unsigned* r;  // read by stmatrix, written by ldmatrix
    unsigned address;
    bool transposed;
};
// Calls body(words, matrix, lane): words points to the two values that the lane has of a matrix as it lies.
template <class Body>
void each_row_part(Gathering& lanes, Body body) {
    require_all(lanes);
    const Block& block = grid().block();
    for (unsigned n = 0; n < 32; ++n) {  // lane n brings the address of row n % 8 of matrix n / 8
        unsigned char* row = shared_at(block, lanes.of<Matrices>(n)->address, 16, 16);
        for (unsigned t = 0; t < 4; ++t) body(row + 4 * t, n / 8, n % 8, t);
    }
}
const Collective kLoad{"ldmatrix", [](Gathering& lanes) {
                           each_row_part(lanes,
                                         [&](const unsigned char* words, unsigned matrix, unsigned row, unsigned t) {
                                             std::memcpy(&lanes.of<Matrices>(4 * row + t)->r[matrix], words, 4);
                                         });
                       }};
const Collective kLoadTransposed{
    "ldmatrix.trans", [](Gathering& lanes) {
        each_row_part(lanes, [&](const unsigned char* words, unsigned matrix, unsigned row, unsigned t) {
            // elements (row, 2 t) and (row, 2 t + 1) belong to the lanes of rows 2 t and 2 t + 1, at column `row`
            for (unsigned e = 0; e < 2; ++e) {
                auto* to = reinterpret_cast<unsigned char*>(&lanes.of<Matrices>(4 * (2 * t + e) + row / 2)->r[matrix]);
                std::memcpy(to + row % 2 * 2, words + 2 * e, 2);
            }
        });
    }};
const Collective kStore{"stmatrix", [](Gathering& lanes) {
                            each_row_part(lanes, [&](unsigned char* words, unsigned matrix, unsigned row, unsigned t) {
                                std::memcpy(words, &lanes.of<Matrices>(4 * row + t)->r[matrix], 4);
                            });
                        }};

struct Product {
    float* c;
    const unsigned* a;
    unsigned b[2];
    bool bf16, fresh;
};
const Collective kProduct{
    "mma", [](Gathering& lanes) {
        require_all(lanes);
        float a[16][16];
        Row b[16], c[16];
        for (unsigned n = 0; n < 32; ++n) {
            const Product& own = *lanes.of<Product>(n);
            const unsigned g = n / 4, t = n % 4 * 2;
            for (unsigned e = 0; e < 2; ++e) {
                const auto half = [&](unsigned both) { return half_of(both, static_cast<int>(e), own.bf16); };
                a[g][t + e] = half(own.a[0]);
                a[g + 8][t + e] = half(own.a[1]);
                a[g][t + 8 + e] = half(own.a[2]);
                a[g + 8][t + 8 + e] = half(own.a[3]);
                b[t + e][g] = half(own.b[0]);
                b[t + 8 + e][g] = half(own.b[1]);
                c[g][t + e] = own.fresh ? 0.0f : own.c[e];
                c[g + 8][t + e] = own.fresh ? 0.0f : own.c[2 + e];
            }
        }
        add_product(c, a, b);
        for (unsigned n = 0; n < 32; ++n) {
            float* own = lanes.of<Product>(n)->c;
            const unsigned g = n / 4, t = n % 4 * 2;
            own[0] = c[g][t], own[1] = c[g][t + 1], own[2] = c[g + 8][t], own[3] = c[g + 8][t + 1];
        }
    }};

}  // namespace

void sync_warp(unsigned mask) {
    gather(kSyncWarp, mask, nullptr);
}

unsigned shuffle(unsigned mask, unsigned x, unsigned from_lane) {
    Shuffle own{x, from_lane, 0};
    gather(kShuffle, mask, &own);
    return own.result;
}

unsigned ballot(unsigned mask, bool x) {
    Ballot own{x, 0};
    gather(kBallot, mask, &own);
    return own.result;
}

void ldmatrix(unsigned (&r)[4], unsigned address, bool transposed) {
    Matrices own{r, address, transposed};
    gather(transposed ? kLoadTransposed : kLoad, ~0u, &own);
}

void stmatrix(unsigned address, const unsigned (&words)[4]) {
    Matrices own{const_cast<unsigned*>(words), address, false};
    gather(kStore, ~0u, &own);
}

void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool bf16, bool fresh) {
    Product own{c, a, {b0, b1}, bf16, fresh};
    gather(kProduct, ~0u, &own);
}

}  // namespace emulator
