// sha256.cpp: see sha256.h.
#include "cuda/jit/sha256.h"

#include <algorithm>
#include <bit>

namespace flashtile::gpu {
namespace {

constexpr std::uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::block(const unsigned char* bytes) {
    using std::rotr;
    std::uint32_t w[64];
    for (int t = 0; t < 16; ++t)
        w[t] = static_cast<std::uint32_t>(bytes[4 * t]) << 24 | static_cast<std::uint32_t>(bytes[4 * t + 1]) << 16 |
               static_cast<std::uint32_t>(bytes[4 * t + 2]) << 8 | bytes[4 * t + 3];
    for (int t = 16; t < 64; ++t)
        w[t] = w[t - 16] + (rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 7] +
               (rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10);
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int t = 0; t < 64; ++t) {
        const std::uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + k[t] + w[t];
        const std::uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::uint32_t last[8] = {a, b, c, d, e, f, g, h};
    for (int n = 0; n < 8; ++n) state_[n] += last[n];
}

void Sha256::add(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t filled = size_ % 64;
        const std::size_t taken = std::min(64 - filled, bytes.size());
        std::copy_n(bytes.begin(), taken, rest_.begin() + filled);
        bytes.remove_prefix(taken);
        size_ += taken;
        if (size_ % 64 == 0) block(rest_.data());
    }
}

std::string Sha256::finish() {
    const std::uint64_t bits = 8 * size_;
    const std::string zeros((119 - size_ % 64) % 64, '\0');  // up to 8 bytes before the end of a block
    add("\x80");
    add(zeros);
    std::string length(8, '\0');
    for (int n = 0; n < 8; ++n) length[n] = static_cast<char>(bits >> (56 - 8 * n));
    add(length);
    std::string hex;
    for (const std::uint32_t word : state_)
        for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
    return hex;
}

std::string sha256(std::string_view bytes) {
    Sha256 sum;
    sum.add(bytes);
    return sum.finish();
}

}  // namespace flashtile::gpu
