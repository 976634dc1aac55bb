// require.h: what a fuzzer calls when a promise is broken: libFuzzer then keeps the input that broke it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace flashtile::fuzz {

inline void require(bool holds, const std::string& promise) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", promise.c_str());
    std::abort();
}

}  // namespace flashtile::fuzz
