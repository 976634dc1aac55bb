// tuned_blocks.h: how many rows a task has, as `flashtile tune --device=cpu` measured it on this CPU, in place of what
// plan.cpp would choose. No bit of a result depends on it. It is kept in the file of tuned tiles (cuda/tuned_tiles.h),
// which FLASHTILE_NO_CHOICES leaves unread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"

namespace flashtile::cpu {

// The problems that tuned blocks are for. They also belong to one CPU and one version of the library.
struct BlocksSubject {
    Pass pass = Pass::forward;
    flashtile_isa isa = FLASHTILE_ISA_PORTABLE;
    DType dtype = DType::fp32;
    std::int64_t head_dim = 0, head_dim_v = 0;
    bool band = false;  // a causal mask or a window
    std::int64_t threads = 0;
    // Powers of two, each for numbers from 3/4 to 3/2 of it; heads: of all sequences.
    std::int64_t seqlen_q = 0, seqlen_k = 0, heads = 0;

    bool operator==(const BlocksSubject&) const = default;
};

BlocksSubject subject_of(Pass pass, flashtile_isa isa, std::int32_t threads, const Problem& problem);

struct TunedBlocks {
    std::string version;  // of the library
    std::string cpu;      // as tuned_cpu() has it
    BlocksSubject subject;
    std::int64_t rows = 0;                                // of a task: queries in forward, keys in backward
    std::int64_t nanoseconds = 0, table_nanoseconds = 0;  // medians with these rows and with the plan's own
    std::string why;                                      // the measurement, in words
};

// This CPU's name, without spaces.
const std::string& tuned_cpu();

// "cpu=AMD_EPYC version=0.1.0 pass=forward isa=avx512 ...": every field by its name, in one order.
std::string to_text(const TunedBlocks& tuned);
// Nothing if to_text() does not write such a line.
std::optional<TunedBlocks> parse_tuned_blocks(std::string_view line);
// Whether a line is of a CPU and not of a GPU.
bool is_of_cpu(std::string_view line);

// "forward avx512 fp32 d=64 dv=64 causal, 2 threads, about 2048 x 2048, 8 heads": in words.
std::string describe(const BlocksSubject& subject);

// Those for such problems on this CPU, or null. After the process's first call it is one load where there are none.
const TunedBlocks* tuned_blocks_for(const BlocksSubject& subject);
const std::vector<TunedBlocks>& all_tuned_blocks();

// As use_tuned_tile() and forget_tuned_tiles() of cuda/tuned_tiles.h; forgetting leaves the file alone.
void use_tuned_blocks(std::string_view text, bool keep);
void forget_tuned_blocks();

}  // namespace flashtile::cpu
