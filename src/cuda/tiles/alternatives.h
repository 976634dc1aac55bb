// alternatives.h: the tiles that `flashtile tune` measures beside those of the tables. Each kernel and width of heads
// has a few, which trade one resource for another. For causal problems they compile without spills: the list of kernel
// variants contains them. `tune` passes over a tile that does not fit the GPU's shared memory.
#pragma once

#include <span>

#include "cuda/tiles/tile.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu::alternatives {

// For fp16 and bf16. A row is for heads that are wider than the previous width and at most as wide as its own.
inline constexpr int kWidths[] = {64, 128, 192, 256};

inline constexpr const char* kFewerKeys = "fewer keys";
inline constexpr const char* kFewerQueries = "fewer queries";
inline constexpr const char* kMoreWarps = "more warps, fewer rows each";
inline constexpr const char* kMoreRows = "more rows read each block of K and V";
inline constexpr const char* kMoreStages = "more stages";
inline constexpr const char* kFewerStages = "fewer stages";

inline constexpr Tile kForward[] = {
    {64, 64, 64, 4, 2, 2, kFewerQueries},  {64, 64, 128, 4, 2, 2, kFewerQueries},
    {64, 128, 32, 4, 3, 2, kFewerKeys},    {64, 128, 64, 4, 2, 2, "two blocks a multiprocessor"},
    {64, 128, 64, 4, 3, 2, kMoreStages},   {64, 128, 64, 8, 2, 1, kMoreWarps},
    {64, 128, 128, 8, 2, 1, kMoreWarps},   {64, 256, 64, 8, 2, 1, kMoreRows},
    {128, 64, 32, 4, 3, 2, kFewerQueries}, {128, 64, 64, 4, 2, 1, kFewerQueries},
    {128, 128, 32, 4, 2, 2, kFewerKeys},   {128, 128, 64, 4, 2, 2, "two blocks a multiprocessor"},
    {128, 128, 32, 8, 3, 1, kFewerKeys},   {128, 128, 64, 8, 2, 1, kMoreWarps},
    {128, 128, 64, 8, 3, 1, kMoreStages},  {128, 256, 32, 8, 3, 1, kMoreRows},
    {192, 64, 32, 4, 2, 1, kFewerQueries}, {192, 128, 32, 8, 2, 1, kFewerKeys},
    {192, 128, 32, 8, 3, 1, kMoreStages},  {192, 128, 64, 8, 2, 1, "more keys"},
    {256, 64, 16, 4, 2, 2, kFewerKeys},    {256, 64, 32, 4, 3, 1, kMoreStages},
    {256, 128, 16, 8, 3, 1, kMoreStages},  {256, 128, 32, 8, 2, 1, kFewerKeys},
    {256, 128, 64, 8, 2, 1, "more keys"},
};

inline constexpr Tile kForwardSm90[] = {
    {64, 64, 64, 8, 3, 3, "three blocks a multiprocessor"},
    {64, 128, 80, 12, 4, 1, kFewerKeys},
    {64, 128, 128, 12, 2, 1, kFewerStages},
    {64, 128, 128, 12, 4, 1, "two consumers"},
    {64, 192, 64, 16, 4, 1, kFewerKeys},
    {64, 192, 80, 16, 4, 1, kFewerKeys},
    {64, 192, 128, 16, 3, 1, "three consumers"},
    {128, 128, 64, 12, 4, 1, kFewerKeys},
    {128, 128, 80, 12, 3, 1, kFewerKeys},
    {128, 128, 128, 12, 2, 1, "two consumers"},
    {128, 192, 64, 16, 3, 1, kFewerKeys},
    {128, 192, 80, 16, 2, 1, "three consumers"},
    {128, 192, 80, 16, 3, 1, kMoreStages},
    {192, 128, 64, 12, 2, 1, kFewerKeys},
    {192, 128, 64, 12, 3, 1, kMoreStages},
    {192, 128, 80, 12, 2, 1, "two consumers"},
    {256, 128, 64, 12, 2, 1, kFewerKeys},
    {256, 128, 80, 12, 2, 1, "two consumers"},
};

inline constexpr Tile kForwardE4m3[] = {
    {64, 128, 128, 12, 4, 1, "two consumers"},   {64, 128, 192, 12, 3, 1, "two consumers, more keys"},
    {64, 192, 64, 16, 4, 1, kFewerKeys},         {64, 192, 128, 16, 2, 1, kFewerStages},
    {64, 192, 128, 16, 3, 1, "three consumers"}, {128, 128, 64, 12, 3, 1, kFewerKeys},
    {128, 128, 128, 12, 2, 1, kFewerKeys},       {128, 128, 128, 12, 3, 1, kMoreStages},
    {128, 128, 160, 12, 2, 1, kFewerKeys},       {128, 128, 192, 12, 2, 1, "two consumers"},
    {128, 192, 64, 16, 3, 1, "three consumers"}, {128, 192, 96, 16, 2, 1, "three consumers, more keys"},
    {128, 128, 64, 12, 4, 1, kMoreStages},       {128, 128, 96, 12, 3, 1, kFewerKeys},
    {128, 128, 96, 12, 4, 1, kMoreStages},       {128, 192, 96, 16, 3, 1, kMoreStages},
    {64, 192, 96, 16, 3, 1, kFewerKeys},         {192, 128, 64, 12, 3, 1, kFewerKeys},
    {192, 128, 128, 12, 2, 1, "two consumers"},  {256, 128, 64, 12, 2, 1, kFewerKeys},
};

inline constexpr Tile kBackward[] = {
    {64, 32, 128, 4, 2, 2, kFewerQueries},  {64, 64, 64, 4, 2, 2, "two blocks a multiprocessor"},
    {64, 64, 64, 8, 2, 1, kFewerKeys},      {64, 64, 128, 8, 2, 1, kFewerQueries},
    {64, 128, 64, 8, 2, 1, kFewerKeys},     {64, 128, 128, 8, 1, 1, kFewerStages},
    {64, 128, 128, 8, 2, 1, "more keys"},   {128, 32, 64, 4, 2, 2, kFewerQueries},
    {128, 32, 128, 8, 2, 1, kFewerQueries}, {128, 64, 64, 8, 2, 1, kFewerKeys},
    {128, 64, 128, 8, 1, 1, kFewerStages},  {128, 64, 128, 8, 2, 1, "more keys"},
    {128, 128, 64, 8, 1, 1, kFewerKeys},    {192, 32, 64, 8, 2, 1, kFewerQueries},
    {192, 64, 64, 8, 1, 1, kFewerStages},   {192, 64, 64, 8, 2, 1, "more queries"},
    {256, 32, 64, 8, 2, 1, kFewerQueries},  {256, 64, 64, 8, 1, 1, kFewerStages},
    {256, 64, 64, 8, 2, 1, "more queries"},
};

// How the consumers share dQ fixes these tiles; only the number of stages may vary.
inline constexpr Tile kBackwardSm90[] = {
    {64, 128, 128, 12, 2, 1, kFewerStages},
    {64, 128, 128, 12, 3, 1, kMoreStages},
    {128, 64, 128, 12, 2, 1, kFewerStages},
    {128, 64, 128, 12, 3, 1, kMoreStages},
};
inline constexpr Tile kBackwardWideSm90[] = {
    {192, 64, 64, 12, 2, 1, kFewerStages},
    {192, 64, 64, 12, 3, 1, kMoreStages},
};

constexpr std::span<const Tile> of(Kernel kernel, Element element) {
    if (element == Element::fp32) return {};
    switch (kernel) {
        case Kernel::forward_sm80:
            return kForward;
        case Kernel::forward_sm90:
            return element == Element::e4m3 ? std::span<const Tile>(kForwardE4m3) : kForwardSm90;
        case Kernel::backward_sm80:
            return kBackward;
        case Kernel::backward_sm90:
            return kBackwardSm90;
        case Kernel::backward_wide_sm90:
            return kBackwardWideSm90;
        default:
            return {};
    }
}

}  // namespace flashtile::gpu::alternatives
