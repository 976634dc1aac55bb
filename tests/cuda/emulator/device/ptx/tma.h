// tma.h: TMA copies between shared memory and a box of a tensor.
#pragma once

namespace flashtile::ptx {

inline void tma_prefetch_map(const void*) {}

inline void tma_load(unsigned to, const void* map, unsigned barrier, int x0, int x1, int x2, int x3) {
    emulator_runtime->tma_load(to, {map, 4, {x0, x1, x2, x3}}, barrier);
}
inline void tma_load(unsigned to, const void* map, unsigned barrier, int x0, int x1, int x2, int x3, int x4) {
    emulator_runtime->tma_load(to, {map, 5, {x0, x1, x2, x3, x4}}, barrier);
}

inline void tma_load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    emulator_runtime->tma_load_bytes(to, from, bytes, barrier);
}

inline void tma_store(unsigned from, const void* map, int x0, int x1, int x2, int x3) {
    emulator_runtime->tma_store(from, {map, 4, {x0, x1, x2, x3}});
}
inline void tma_store(unsigned from, const void* map, int x0, int x1, int x2, int x3, int x4) {
    emulator_runtime->tma_store(from, {map, 5, {x0, x1, x2, x3, x4}});
}
inline void tma_commit() {
    emulator_runtime->tma_commit();
}
inline void tma_wait_read() {
    emulator_runtime->tma_wait();
}
inline void tma_wait_written() {
    emulator_runtime->tma_wait();
}

inline void fence_async_proxy() {}

}  // namespace flashtile::ptx
