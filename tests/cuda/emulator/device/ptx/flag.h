// flag.h: words in global memory with which thread blocks tell each other how far they are.
#pragma once

namespace flashtile::ptx {

inline unsigned load_acquire(const unsigned* word) {
    emulator_runtime->rest();
    return *word;
}

inline void store_release(unsigned* word, unsigned x) {
    *word = x;
    emulator_runtime->changed();
}

}  // namespace flashtile::ptx
