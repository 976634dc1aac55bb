// runtime.cpp: the table of functions that kernels call (device/runtime.h).
#include "emulator/device/runtime.h"

#include "emulator/driver/async_copies.h"
#include "emulator/driver/barriers.h"
#include "emulator/driver/cluster.h"
#include "emulator/driver/grid.h"
#include "emulator/driver/tma.h"
#include "emulator/driver/warp_functions.h"
#include "emulator/driver/warpgroup_product.h"

namespace emulator {

const Runtime& runtime() {
    static constexpr Runtime table = {
        .fail = [](const char* what,
                   unsigned long long value) { grid().fail(std::string(what) + " " + std::to_string(value)); },
        .sync_threads = sync_threads,
        .sync_warp = sync_warp,
        .shuffle = shuffle,
        .ballot = ballot,
        .barrier = named_barrier,
        .barrier_arrive = named_barrier_arrive,
        .rest = [] { grid().rest(); },
        .changed = [] { grid().progress(); },
        .clock = [] { return static_cast<long long>(grid().events()); },
        .ldmatrix = ldmatrix,
        .stmatrix = stmatrix,
        .mma = mma,
        .copy_async = copy_async,
        .copy_async_commit = copy_async_commit,
        .copy_async_wait = copy_async_wait,
        .mbarrier_init = mbarrier_init,
        .mbarrier_arrive = mbarrier_arrive,
        .mbarrier_wait = mbarrier_wait,
        .tma_load = tma_load,
        .tma_load_bytes = tma_load_bytes,
        .tma_store = tma_store,
        .tma_commit = tma_commit,
        .tma_wait = tma_wait,
        .cluster_arrive = cluster_arrive,
        .cluster_wait = cluster_wait,
        .mbarrier_arrive_in = mbarrier_arrive_in,
        .copy_to = copy_to,
        .wgmma = wgmma,
        .wgmma_commit = wgmma_commit,
        .wgmma_wait = wgmma_wait,
    };
    return table;
}

}  // namespace emulator
