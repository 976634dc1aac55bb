// shared_memory.h: ordinary reads and writes of shared memory by address.
#pragma once

namespace flashtile::ptx {

inline void store_shared(unsigned address, unsigned x) {
    *emulator::shared<unsigned>(address) = x;
}

inline void store_shared(unsigned address, const uint4& x) {
    *emulator::shared<uint4>(address) = x;
}

inline unsigned load_shared_word(unsigned address) {
    return *emulator::shared<unsigned>(address);
}

inline float2 load_shared_pair(unsigned address) {
    return *emulator::shared<float2>(address);
}

inline uint4 load_shared(unsigned address) {
    return *emulator::shared<uint4>(address);
}

}  // namespace flashtile::ptx
