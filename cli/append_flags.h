// append_flags.h: the flags of `attend` that say what is appended to the cache before it attends, and how new keys and
// queries are rotated.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attend_inputs.h"
#include "placement.h"
#include "whole_numbers.h"

namespace flashtile::cli {

// Their files.
struct AppendInputs {
    struct List {
        tensor append_args::*meaning;
        WholeNumbers numbers;
    };

    AttendInput k;
    std::optional<AttendInput> v, cos, sin;
    std::vector<List> lists;
    std::int64_t rotary_begin = 0;
    bool rotary_interleaved = false;

    // Throws std::invalid_argument where new rows have a wrong number of dimensions or cos and sin hold no numbers.
    void check() const;
    append_args place(Placement& place, Layout layout) const;

private:
    bool packed() const;
};

class AppendFlags {
public:
    void add_to(CLI::App& command, CLI::Option* cache);

    bool given() const { return !k.empty(); }
    std::optional<AppendInputs> open() const;

    std::string k, v, q_out, cache_k_out, cache_v_out;

private:
    struct Flag {
        const char* name;
        tensor append_args::*meaning;
        const char* help;
        std::string given = "";
    };
    std::string cos_, sin_;
    std::vector<Flag> lists_{
        {"--cu-seqlens-k-new", &append_args::cu_seqlens_k_new, "Packed new keys: where each sequence's start"},
        {"--rotary-offsets", &append_args::rotary_offsets, "Stands for --seqused-k in positions of rotation"},
        {"--append-positions", &append_args::positions, "Position of each new key in its rotation"},
        {"--positions-q", &append_args::positions_q, "Position of each query in its rotation"}};
    std::int64_t begin_ = 0;
    bool interleaved_ = false;
};

// flashtile::forward_workspace of a call that appends.
std::size_t append_forward_workspace(const options& o, const append_args& a, const tensor& q, const tensor& k,
                                     const tensor& v, const tensor& out, const tensor& lse);

}  // namespace flashtile::cli
