// cp_async.h: copies from global to shared memory. They happen when the thread waits for them; until then the place
// holds NaN.
#pragma once

namespace flashtile::ptx {

template <int kBytes>
inline void cp_async(unsigned to, const void* from, bool valid) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    emulator_runtime->copy_async(to, from, kBytes, valid);
}

inline void cp_async_commit() {
    emulator_runtime->copy_async_commit();
}

template <int kPending>
inline void cp_async_wait() {
    emulator_runtime->copy_async_wait(kPending);
}

}  // namespace flashtile::ptx
