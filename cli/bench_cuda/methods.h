// methods.h: what `bench baselines` and `bench paper` time on a GPU, by name: standard attention, FlashAttention with
// every choice of its three switches, our own general kernels at the same tile, and the library as users call it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/cuda/kernel_texts.h"
#include "bench_cuda/problem.h"
#include "block_pattern.h"

namespace flashtile::cli::bench_cuda {

using gpu_baselines::KernelText;

struct Method {
    std::string name;
    // With the n-th of its tiles, of which each pass has some.
    std::function<std::unique_ptr<Attention>(Pass pass, std::size_t n)> make;
    std::vector<std::string> forward_tiles, backward_tiles;
    std::vector<KernelText> texts;  // of its kernels; none of the library's own call, which compiles by itself
};

// "fa1", with "+3.1" and so on for each section of the FlashAttention-2 paper whose change it has.
std::string name_of(WorkPartition ways);

inline constexpr const char* kStandard = "standard";
inline constexpr const char* kAtGeneralTile = "fa1 all, general's tile";  // all switches on
inline constexpr const char* kGeneralExact = "general, exact max";        // what that one is to come near to
inline constexpr const char* kGeneral = "general";
inline constexpr const char* kLibrary = "flashtile";

// In the order of the table. The first is what results are compared with.
std::vector<Method> methods_for(const Shape& shape, Element element);

// Of those what the papers' figures compare: standard attention, FlashAttention, our general kernels, the library.
std::vector<Method> paper_methods(const Shape& shape, Element element);

struct Blocks {
    int Br, Bc;
};
// "general 64x128"
std::string name_of(Blocks blocks);
// Those that the library's plan has.
Blocks planned_blocks(const Shape& shape, Element element, Pass pass);
// Standard attention, and forward of our general kernels with each of these blocks; 16 or 32 queries a warp, whichever
// is faster.
std::vector<Method> block_methods(const Shape& shape, Element element, const std::vector<Blocks>& sizes);

// Blocks that a call sees, on the GPU: in its options as a boolean mask, which the kernels read at each place, and as
// lists of blocks.
class SeenBlocks {
public:
    SeenBlocks(const BlockPattern& pattern, std::int64_t seqlen);
    options mask, lists;

private:
    gpu_resources::Buffer places_, counts_, indices_;
};
inline constexpr const char* kBlocksAsMask = "blocks as a mask";
// The library with either, `seen` outliving them.
std::vector<Method> block_sparse_methods(const Shape& shape, Element element, const SeenBlocks& seen);

}  // namespace flashtile::cli::bench_cuda
