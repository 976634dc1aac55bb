// candidate.h: a candidate is a family of kernels that may run a problem, with its conditions, its tiles and what it
// launches. plan.cpp lists the candidates of each pass, from the most special to the most general. The plan is made by
// the first one whose conditions hold and that has a tile which fits the GPU. A new family is a file beside this one,
// and a line in plan.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cuda/plan/plan.h"

namespace flashtile::gpu {

// A problem on a GPU, as candidates see it.
struct Question {
    const Problem& problem;
    const Access& access;
    const DeviceFacts& device;
    KernelConfig config;  // what all kernels of the problem have in common
};

struct Condition {
    std::string_view otherwise;  // the reason that is given if it does not hold
    bool (*holds)(const Question&);
};

struct Candidate {
    const char* name;  // the name of its main kernel, for people
    // First the conditions of all kernels of an architecture, then its own.
    std::array<std::span<const Condition>, 2> conditions;
    // The launch of its main kernel with the first tile of its tables that fits the GPU, without grid and tensor maps.
    // Returns nothing if no tile fits.
    std::optional<Launch> (*main)(const Question&);
    // Adds all launches to the plan, `main` among them, and the regions of the workspace that they need.
    void (*complete)(const Question&, const Launch& main, Plan& plan);
    // The main kernel's config depends on the lengths. Here is one length of each range that has another config.
    std::span<const std::int64_t> seqlens_q, seqlens_k;
};

extern const Candidate latent_forward_sm90, split_forward_sm80, forward_sm90, forward_sm80;
extern const Candidate backward_sm90, backward_sm80;

Element element_of(DType dtype);

// Sets what all kernels of a problem have in common.
Question question_of(const Problem& problem, const Access& access, const DeviceFacts& device);

// What only the kernels for serving compute so far.
constexpr bool asks_for_serving(const KernelConfig& c) {
    return c.cache || c.chunk || c.tree_mask || c.sinks || c.first_k || c.seqused_q;
}

// How many thread blocks of a persistent kernel run at a time. Where multiprocessors are limited there is one for each
// of them, since nobody says which thread blocks share one.
std::int64_t blocks_at_a_time(const Question& question, const KernelConfig& config);

// Whether Hopper's forward takes the problem and keeps the machine busy with it.
bool forward_sm90_fills(const Question& question);

// The reason of the first condition that does not hold, or "" if all hold.
std::string_view why_passed_over(const Candidate& candidate, const Question& question);

}  // namespace flashtile::gpu
