// alternatives.cpp: the tiles that `flashtile tune` may choose, as variants that must compile: on an Ampere GPU and on
// Hopper, for causal problems, whose kernels hold all the code of those without a mask.
#include <algorithm>

#include "cuda/plan/tile_fit.h"
#include "cuda/tuned_tile.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {

std::vector<Variant> alternatives() {
    std::vector<Variant> result;
    for (const char* name : {"A100-80", "H200"}) {
        const gpu::DeviceFacts& device = gpu::known_device(name);
        for (const std::int64_t d : {64, 128, 192, 256}) {
            Problem p;
            p.dtype = DType::bf16;
            p.batch = p.heads = p.kv_heads = 4;
            p.seqlen_q = p.seqlen_k = 4096;
            p.head_dim = p.head_dim_v = d;
            p.scale = 0.125f;
            p.window_right = 0;
            const gpu::Access access = gpu::contiguous_access(p);
            const auto add = [&](const gpu::Launch& table) {
                for (const gpu::TunedTile& tuned : gpu::alternatives_of(table, p, device))
                    result.push_back({device.architecture, gpu::with_tile(table.config, tuned.tile, device)->config});
            };
            add(gpu::plan_forward(p, access, device).main());
            add(gpu::plan_backward(p, access, device).main());
            p.dtype = DType::fp8_e4m3;
            p.out_dtype = DType::bf16;
            add(gpu::plan_forward(p, gpu::contiguous_access(p), device).main());
        }
    }
    return result;
}

}  // namespace flashtile::variants
