// shape_options.h: the flags that say how large a problem is, declared once for the commands that make one up.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace flashtile::cli {

struct ShapeOptions {
    std::int64_t batch = 1;
    std::int64_t heads = 2;
    std::int64_t kv_heads = 0;  // 0: as heads
    std::int64_t seqlen_q = 128;
    std::int64_t seqlen_k = 0;  // 0: as seqlen_q
    std::int64_t head_dim = 64;
    std::int64_t head_dim_v = 0;  // 0: as head_dim

    void add_to(CLI::App& app, const std::string& group);
    // Call it once the flags are read. It sets the sizes that were not given.
    void complete();
};

}  // namespace flashtile::cli
