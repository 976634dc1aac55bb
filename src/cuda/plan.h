// plan.h: which kernels a problem gets on a GPU, with which tiles: a pure function of the problem, what its memory
// allows, facts about the GPU and what was measured there, so that it can be asked about GPUs that are not there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem.h"
#include "cuda/device_facts.h"
#include "cuda/tiles/tile.h"
#include "shared/kernel_config.h"
#include "shared/tile_rounds.h"

namespace flashtile::gpu {

// What operands allow beside what the Problem says.
struct Access {
    int vector_bytes = 16;    // of loads and stores: what all rows are aligned to
    bool tensor_maps = true;  // Hopper's copy engine can read q, k and v
    bool bias_map = true;     // and the bias
    bool lse = true;          // forward writes LSE
    bool seqused = false;
    bool dbias = false;
    std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1, bias_cols = 1;

    bool operator==(const Access&) const = default;
};

Access access_of(const Problem& problem, const Operands& operands);

// That of contiguous tensors.
Access contiguous_access(const Problem& problem);

// One kernel of a plan.
struct PlannedKernel {
    KernelConfig config;
    int shared_memory = 0;               // dynamic, bytes
    std::int64_t blocks = 0;             // thread blocks; 0: nothing to do
    const char* why = "";                // the tile table's reason, or the choice's
    std::string_view why_not_sm90 = {};  // of forward and backward: why not the kernel for Hopper; empty where it is
    bool measured = false;               // the tile is a choice
};

struct ForwardPlan {
    PlannedKernel forward;
    TileRounds rounds{};        // of the kernel for Hopper, unless lengths differ
    std::size_t workspace = 0;  // bytes: of tiles that are dealt out as they are asked for, how many have been
};

struct BackwardPlan {
    PlannedKernel prepare, backward, finish, bias;  // bias.blocks is 0 without dbias
    std::int64_t units = 0;                         // of Br queries, of a head, over all sequences

    // Bytes of the workspace and where its parts start.
    std::size_t lse = 0, lse_natural = 0, D = 0, dq = 0, turn = 0, workspace = 0;
};

struct Choice;
using Choices = std::span<const Choice>;  // what `flashtile tune` measured on this GPU: choice.h

// Throws UNSUPPORTED where no kernel serves the problem on this GPU, naming what would.
ForwardPlan plan_forward(const Problem& problem, const Access& access, const DeviceFacts& device, Choices choices = {});
BackwardPlan plan_backward(const Problem& problem, const Access& access, const DeviceFacts& device,
                           Choices choices = {});

PlannedKernel plan_dropout_mask(const Problem& problem, const DeviceFacts& device);

// All the configs that a problem needs at whatever lengths, forward and backward, as `flashtile compile` makes them.
std::vector<KernelConfig> configs_for(Problem problem, const Access& access, const DeviceFacts& device);

// The config with this tile, but for its grid; nothing where the tile does not fit the kernel or the GPU.
std::optional<PlannedKernel> with_tile(KernelConfig config, const Tile& tile, const DeviceFacts& device);

const char* name_of(Kernel kernel);
const char* name_of(Element element);

// "forward_sm80 bf16 d=128 dv=128, 128x64 tile, 4 warps, ...": a line for people.
std::string describe(const PlannedKernel& kernel);

}  // namespace flashtile::gpu
