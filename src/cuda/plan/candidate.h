// candidate.h: a kernel family that may run a problem: its conditions, its tiles and what it launches. The candidates
// of a pass stand in plan.cpp, from the most special to the most general; the first whose conditions hold, and of which
// a tile fits the GPU, makes the plan. A new family is a file beside this one's, and a line there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// What a candidate is asked.
struct Question {
    const Problem& problem;
    const Access& access;
    const DeviceFacts& device;
    KernelConfig config;  // what all kernels of the problem have in common
};

struct Condition {
    std::string_view otherwise;  // the reason given where it does not hold
    bool (*holds)(const Question&);
};

struct Candidate {
    const char* name;  // that of its main kernel, as it is printed
    // In this order: those of all kernels of an architecture, then its own.
    std::array<std::span<const Condition>, 2> conditions;
    // The launch of its main kernel, but for the grid and the maps, with the first tile of its tables that fits the
    // GPU; nothing where none does.
    std::optional<Launch> (*main)(const Question&);
    // Adds to the plan what it launches, the main kernel being `main`, and what those need.
    void (*complete)(const Question&, const Launch& main, Plan& plan);
    // Lengths of queries and of keys: one of each range in which its main kernel has another config.
    std::span<const std::int64_t> seqlens_q, seqlens_k;
};

extern const Candidate forward_sm90, forward_sm80;
extern const Candidate backward_sm90, backward_sm80;

// What all kernels of a problem have in common.
Question question_of(const Problem& problem, const Access& access, const DeviceFacts& device);

// The first condition that does not hold, in its words; "": all hold.
std::string_view why_passed_over(const Candidate& candidate, const Question& question);

}  // namespace flashtile::gpu
