// latent_ring.h: the ring of stages of keys where V is the first columns of K. Every chunk of 64 columns says for
// itself when it is full, so that the first of them are multiplied while the last are on their way; and each of the
// three who read a chunk last releases its own share, so that the next block's chunks are on their way early (sm_90).
#pragma once

#include "cuda/kernels/ptx/mbarrier.h"
#include "shared/kernel_layout.h"

namespace flashtile {

// Who reads a chunk last: the first consumer, with P V; the first consumer, with S, since the chunk is no part of V; or
// the second consumer, with P V. Stages are filled, and S is computed, in this order, which is that of the releases.
enum class LatentShare { first_values, keys_only, second_values };

template <KernelConfig config>
struct LatentRing {
    static constexpr int kChunks = chunk_columns(config.head_dim) / kChunk;
    static constexpr int kValueChunks = chunk_columns(config.head_dim_v) / kChunk;
    // The second consumer has more of V, and its product is what hides the first one's softmax.
    static constexpr int kFirstChunks = kValueChunks * 3 / 8 > 0 ? kValueChunks * 3 / 8 : 1;
    static constexpr int kSecondChunks = kValueChunks - kFirstChunks;
    static constexpr int kBytesChunk = config.Bc * kChunkRowBytes;
    static constexpr int kShares = 3;

    unsigned full, empty;  // shared addresses of the first stage's barriers
    int stage = 0;
    unsigned phase = 0;

    // The n-th chunk in the order of shares.
    __device__ static constexpr int chunk_at(int n) {
        if (n < kFirstChunks) return n;
        const int keys_only = kChunks - kValueChunks;
        return n < kFirstChunks + keys_only ? n + kSecondChunks : n - keys_only;
    }
    __device__ static constexpr LatentShare share_of(int chunk) {
        if (chunk >= kValueChunks) return LatentShare::keys_only;
        return chunk < kFirstChunks ? LatentShare::first_values : LatentShare::second_values;
    }

    // Puts the barriers at an address; returns the address behind them.
    __device__ __forceinline__ unsigned place(unsigned address) {
        full = address;
        empty = full + config.stages * kChunks * 8;
        return empty + config.stages * kShares * 8;
    }
    __device__ __forceinline__ void init() const {
        for (int n = 0; n < config.stages * kChunks; ++n) ptx::mbarrier_init(full + n * 8, 1);
        for (int n = 0; n < config.stages * kShares; ++n) ptx::mbarrier_init(empty + n * 8, 1);
    }

    __device__ __forceinline__ unsigned full_barrier(int chunk) const { return full + (stage * kChunks + chunk) * 8; }
    __device__ __forceinline__ void wait_full(int chunk) const { ptx::mbarrier_wait(full_barrier(chunk), phase); }
    __device__ __forceinline__ void wait_all_full() const {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) wait_full(chunk);
    }
    // A stage that was never filled is empty.
    __device__ __forceinline__ void wait_empty(LatentShare share) const {
        ptx::mbarrier_wait(empty_barrier(stage, share), phase ^ 1);
    }
    __device__ __forceinline__ void release(int of_stage, LatentShare share) const {
        ptx::mbarrier_arrive(empty_barrier(of_stage, share));
    }
    __device__ __forceinline__ void advance() {
        if (++stage == config.stages) stage = 0, phase ^= 1;
    }

private:
    __device__ __forceinline__ unsigned empty_barrier(int of_stage, LatentShare share) const {
        return empty + (of_stage * kShares + static_cast<int>(share)) * 8;
    }
};

}  // namespace flashtile
