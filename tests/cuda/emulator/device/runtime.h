// runtime.h: what the emulated driver gives to a kernel that was compiled for the host: what a CUDA thread knows of
// itself, and the functions that take more than one thread. Both the driver and the compiled kernels include it.
#pragma once

namespace emulator {

struct Dim {
    unsigned x, y, z;
};

struct Thread {
    Dim thread, block;      // threadIdx, blockIdx
    Dim threads, blocks;    // blockDim, gridDim
    unsigned char* shared;  // where the thread block's shared memory lies on the host
    unsigned shared_first;  // its first shared address
    unsigned shared_bytes;
};

// A box of a tensor, for TMA.
struct Box {
    const void* map;
    int dimensions;
    int at[5];
};

// The operands of wgmma for one warp of the warpgroup. a is null where both factors lie in shared memory.
struct WarpgroupProduct {
    float* d;
    const unsigned* a;
    unsigned long long shared_a, shared_b;
    int columns;
    bool add, bf16, transposed_a, transposed_b;
    bool e4m3 = false;  // and not bf16 or fp16: K is 32
};

// Every function counts as something that the calling thread has done, except rest().
struct Runtime {
    // Stops the launch with an error that says what the calling thread did wrong.
    [[noreturn]] void (*fail)(const char* what, unsigned long long value);

    bool (*sync_threads)(bool x);  // returns whether x is true for all threads
    void (*sync_warp)(unsigned mask);
    unsigned (*shuffle)(unsigned mask, unsigned x, unsigned from_lane);
    unsigned (*ballot)(unsigned mask, bool x);

    // At a named barrier; returns whether `x` is true for all threads.
    bool (*barrier)(unsigned number, unsigned threads, bool x);
    void (*barrier_arrive)(unsigned number, unsigned threads);

    // Other threads and thread blocks go on. The caller may wait for them.
    void (*rest)();
    // The caller has changed a word in memory that others may wait for.
    void (*changed)();
    long long (*clock)();

    void (*ldmatrix)(unsigned (&r)[4], unsigned address, bool transposed);
    void (*stmatrix)(unsigned address, const unsigned (&words)[4]);
    void (*mma)(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool bf16, bool fresh);

    void (*copy_async)(unsigned to, const void* from, int bytes, bool valid);
    void (*copy_async_commit)();
    void (*copy_async_wait)(int pending);

    void (*mbarrier_init)(unsigned barrier, unsigned arrivals);
    void (*mbarrier_arrive)(unsigned barrier, unsigned bytes);
    void (*mbarrier_wait)(unsigned barrier, unsigned parity);

    void (*tma_load)(unsigned to, const Box& box, unsigned barrier);
    void (*tma_load_bytes)(unsigned to, const void* from, unsigned bytes, unsigned barrier);
    void (*tma_store)(unsigned from, const Box& box);
    void (*tma_commit)();
    void (*tma_wait)();

    void (*cluster_arrive)();
    void (*cluster_wait)();
    void (*mbarrier_arrive_in)(unsigned rank, unsigned barrier);
    void (*copy_to)(unsigned rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier);

    void (*wgmma)(const WarpgroupProduct& product);
    void (*wgmma_commit)();
    void (*wgmma_wait)(int pending);
};

}  // namespace emulator
