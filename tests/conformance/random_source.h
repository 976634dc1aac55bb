// random_source.h: numbers from a seed, the same on every machine and standard library (std's distributions are not).
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace flashtile::conformance {

class RandomSource {
public:
    // The seed is mixed: two states that differ by a multiple of the step would give the same numbers, shifted.
    explicit RandomSource(std::uint64_t seed) : state_(mix(seed + 1)) {}

    std::uint64_t bits() {  // splitmix64
        state_ += 0x9E3779B97F4A7C15u;
        return mix(state_);
    }
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
        return radius * std::cos(2.0 * std::numbers::pi * uniform());
    }
    // In [low, high].
    std::int64_t integer(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(double probability) { return uniform() < probability; }
    template <class T>
    T pick(std::initializer_list<T> choices) {
        return choices.begin()[bits() % choices.size()];
    }

private:
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }

    std::uint64_t state_;
};

}  // namespace flashtile::conformance
