// config_fields.h: the fields of a KernelConfig with their names, in order of declaration: the one place that lists
// them, for printing, for reading and for hashing. A field more or fewer in the struct does not compile here.
#pragma once

#include "shared/kernel_config.h"

namespace flashtile::gpu {

// Calls visit(name, value) for every field; values may be set where the config may.
template <class Config, class Visit>
constexpr void visit_fields(Config&& config, Visit&& visit) {
    auto& [kernel, element, head_dim, head_dim_v, value_slices, group_rows, Br, Bc, warps, stages, warps_s, warps_dkv,
           warps_dq, blocks_per_sm, vector_bytes, lse, band, window, packed, seqused, scale_first, softcap, alibi, bias,
           bias_mapped, mask, dropout, deterministic, lazy_rescale, exact_max] = config;
    visit("kernel", kernel);
    visit("element", element);
    visit("head_dim", head_dim);
    visit("head_dim_v", head_dim_v);
    visit("value_slices", value_slices);
    visit("group_rows", group_rows);
    visit("Br", Br);
    visit("Bc", Bc);
    visit("warps", warps);
    visit("stages", stages);
    visit("warps_s", warps_s);
    visit("warps_dkv", warps_dkv);
    visit("warps_dq", warps_dq);
    visit("blocks_per_sm", blocks_per_sm);
    visit("vector_bytes", vector_bytes);
    visit("lse", lse);
    visit("band", band);
    visit("window", window);
    visit("packed", packed);
    visit("seqused", seqused);
    visit("scale_first", scale_first);
    visit("softcap", softcap);
    visit("alibi", alibi);
    visit("bias", bias);
    visit("bias_mapped", bias_mapped);
    visit("mask", mask);
    visit("dropout", dropout);
    visit("deterministic", deterministic);
    visit("lazy_rescale", lazy_rescale);
    visit("exact_max", exact_max);
}

}  // namespace flashtile::gpu
