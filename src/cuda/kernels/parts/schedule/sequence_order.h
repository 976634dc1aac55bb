// sequence_order.h: the order in which sequences are dealt out where lengths lie in device memory: the longest first,
// so that what thread blocks still work on at the end is short. Each thread block finds the order by itself before it
// begins.
#pragma once

#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "shared/kernel_layout.h"

namespace flashtile {

template <KernelConfig config>
struct SequenceOrder {
    unsigned table;  // shared address: for the n-th sequence, how many tiles of a head come before it, and its number
    int batch;

    // Sequences beyond what the table holds stay in the batch's order.
    __device__ __forceinline__ bool fits() const { return config.lengths_differ() && batch <= kMostOrdered; }

    // All threads call this; a barrier must follow.
    __device__ __forceinline__ void find(const KernelParams& p) const {
        const auto sequence = [&](int b) { return Sequence::make<config>(p, b, 0); };
        for (int b = static_cast<int>(threadIdx.x); b < batch; b += config.warps * 32) {
            const Sequence own = sequence(b);
            unsigned rank = 0, before = 0;
            for (int other = 0; other < batch; ++other) {
                const Sequence its = sequence(other);
                const bool first = its.seqlen_k > own.seqlen_k || (its.seqlen_k == own.seqlen_k && other < b);
                rank += first ? 1 : 0;
                before += first ? tiles_of(its) : 0;
            }
            ptx::store_shared(table + rank * 16, make_uint4(before, static_cast<unsigned>(b), 0, 0));
            if (rank + 1 == static_cast<unsigned>(batch))
                ptx::store_shared(table + batch * 16, make_uint4(before + tiles_of(own), 0, 0, 0));
        }
    }

    // How many tiles a head has in all sequences.
    __device__ __forceinline__ unsigned tiles() const { return at(batch).x; }

    // Tile n of all. They go sequence by sequence, and head by head within one.
    __device__ __forceinline__ TileNumber tile(unsigned n, unsigned heads) const {
        const unsigned wanted = n / heads;
        int own = 0, end = batch;
        while (end - own > 1) {
            const int middle = own + (end - own) / 2;
            (at(middle).x <= wanted ? own : end) = middle;
        }
        const uint4 sequence = at(own);
        return last_to_first(sequence.y * heads, n - sequence.x * heads, at(own + 1).x - sequence.x);
    }

private:
    __device__ __forceinline__ uint4 at(int n) const { return ptx::load_shared(table + n * 16); }
    __device__ static __forceinline__ unsigned tiles_of(const Sequence& its) {
        return static_cast<unsigned>(query_blocks<config>(its.seqlen_q));
    }
};

}  // namespace flashtile
