// limits.cpp: see limits.h.
#include "cuda/plan/limits.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/error.h"

namespace flashtile::gpu {
namespace {

constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() - 1024;
constexpr std::int64_t kWidestBackward = 256;
constexpr int kOldest = 80;  // compute capability 8.0: mma.sync as the kernels want it, cp.async

std::string head_dims(const Problem& p) {
    return "head_dim is " + std::to_string(p.head_dim) + " and head_dim_v " + std::to_string(p.head_dim_v);
}

// There is no gradient of what serves text that is there already. Null where nothing of it is given.
const char* what_forward_alone_takes(const Problem& p) {
    if (p.cache) return p.page_size != 0 ? "block_table" : "a cache";
    if (p.first_k) return "first_k";
    if (p.used_q) return "seqused_q";
    return p.tree_mask ? "tree_mask" : nullptr;
}

}  // namespace

void unsupported(const std::string& message) {
    throw Error(FLASHTILE_UNSUPPORTED, message);
}

void check_architecture(const DeviceFacts& device) {
    if (device.architecture < kOldest)
        unsupported("device is '" + device.name + "' of compute capability " +
                    std::to_string(device.architecture / 10) + "." + std::to_string(device.architecture % 10) +
                    ", supported is 8.0 and newer");
}

void check_limits(const Problem& p, const DeviceFacts& device) {
    check_architecture(device);
    for (const auto& [name, count] :
         {std::pair("seqlen_q", p.seqlen_q), std::pair("seqlen_k", p.seqlen_k), std::pair("batch", p.batch),
          std::pair("heads", p.heads), std::pair(p.page_size != 0 ? "num_pages" : "the number of cache rows", p.pages),
          std::pair("page_size", p.page_size)})
        if (count > kMostRows)
            unsupported(std::string(name) + " is " + std::to_string(count) + ", supported on CUDA is at most " +
                        std::to_string(kMostRows));
    // Kernels count positions in 32 bits.
    const std::int64_t most = kMostRows - std::min(p.seqlen_q + p.seqlen_k, kMostRows);
    if (std::abs(p.diagonal) > most && p.diagonal != 0)
        unsupported("diagonal is " + std::to_string(p.diagonal) + ", supported on CUDA at these lengths is at most " +
                    std::to_string(most) + " either way");
    if (p.diagonals && most < FLASHTILE_MAX_DIAGONAL)  // the host does not read them
        unsupported("diagonals is given with seqlen_q + seqlen_k " + std::to_string(p.seqlen_q + p.seqlen_k) +
                    ", supported on CUDA beside it is at most " + std::to_string(kMostRows - FLASHTILE_MAX_DIAGONAL));
}

bool backward_takes(const Problem& p) {
    return what_forward_alone_takes(p) == nullptr && p.head_dim <= kWidestBackward && p.head_dim_v <= kWidestBackward;
}

void check_backward_limits(const Problem& p) {
    if (const char* const given = what_forward_alone_takes(p))
        unsupported(std::string(given) + " is given, which only forward takes");
    if (p.sm_limit != 0)
        unsupported("sm_limit is " + std::to_string(p.sm_limit) + ", which only forward takes on CUDA");
    if (!backward_takes(p))
        unsupported(head_dims(p) + ", supported by the backward pass on CUDA is at most " +
                    std::to_string(kWidestBackward));
}

std::string no_room(const Problem& p, const DeviceFacts& device, const char* pass) {
    return head_dims(p) + ", and " + device.name + " has " + std::to_string(device.shared_memory_per_block) +
           " bytes of shared memory a block: too little for this " + pass +
           " pass; smaller head dimensions or the CPU do";
}

std::int64_t checked_blocks(std::int64_t blocks) {
    if (blocks > kMostBlocks)
        unsupported("the problem takes " + std::to_string(blocks) + " thread blocks, supported is at most " +
                    std::to_string(kMostBlocks));
    return blocks;
}

std::int64_t query_blocks(const Problem& p, int Br) {
    return checked_blocks(blocks_of(p.seqlen_q, Br) * p.heads * p.batch);
}

}  // namespace flashtile::gpu
