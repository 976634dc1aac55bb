// config_fields.h: the fields of a KernelConfig with their names, in order of declaration, and what each is for: the
// one place that lists them, for printing, reading, hashing and resetting. A field more or fewer in the struct does not
// compile here.
#pragma once

#include "shared/kernel_config.h"

namespace flashtile::gpu {

enum class FieldGroup {
    kernel,  // which kernel, for which elements and columns
    tile,    // the sizes of a tile and how warps share it
    option,  // what a call asks for
    manner,  // how a kernel goes about it
};

// Calls visit(name, pointer to member, group) for every field.
template <class Visit>
constexpr void visit_members(Visit&& visit) {
    using C = KernelConfig;
    using enum FieldGroup;
    visit("kernel", &C::kernel, kernel);
    visit("element", &C::element, kernel);
    visit("head_dim", &C::head_dim, kernel);
    visit("head_dim_v", &C::head_dim_v, kernel);
    visit("value_slices", &C::value_slices, kernel);
    visit("group_rows", &C::group_rows, kernel);
    visit("Br", &C::Br, tile);
    visit("Bc", &C::Bc, tile);
    visit("warps", &C::warps, tile);
    visit("stages", &C::stages, tile);
    visit("warps_s", &C::warps_s, tile);
    visit("warps_dkv", &C::warps_dkv, tile);
    visit("warps_dq", &C::warps_dq, tile);
    visit("blocks_per_sm", &C::blocks_per_sm, tile);
    visit("vector_bytes", &C::vector_bytes, kernel);
    visit("out_element", &C::out_element, kernel);
    visit("converts_q", &C::converts_q, kernel);
    visit("converts_kv", &C::converts_kv, kernel);
    visit("scale_blocks", &C::scale_blocks, kernel);
    visit("lse", &C::lse, manner);
    visit("band", &C::band, option);
    visit("window", &C::window, option);
    visit("packed", &C::packed, option);
    visit("seqused", &C::seqused, option);
    visit("seqused_q", &C::seqused_q, option);
    visit("cache", &C::cache, option);
    visit("paged", &C::paged, option);
    visit("first_k", &C::first_k, option);
    visit("chunk", &C::chunk, option);
    visit("diagonals", &C::diagonals, option);
    visit("tree_mask", &C::tree_mask, option);
    visit("sinks", &C::sinks, option);
    visit("scale_first", &C::scale_first, manner);
    visit("softcap", &C::softcap, option);
    visit("alibi", &C::alibi, option);
    visit("bias", &C::bias, option);
    visit("bias_mapped", &C::bias_mapped, manner);
    visit("mask", &C::mask, option);
    visit("functions", &C::functions, option);
    visit("score_function", &C::score_function, option);
    visit("mask_function", &C::mask_function, option);
    visit("block_lists", &C::block_lists, option);
    visit("lists_alone", &C::lists_alone, option);
    visit("narrow_lists", &C::narrow_lists, manner);
    visit("near_positions", &C::near_positions, option);
    visit("map_of_keys", &C::map_of_keys, manner);
    visit("dropout", &C::dropout, option);
    visit("shifted_dropout", &C::shifted_dropout, manner);
    visit("deterministic", &C::deterministic, option);
    visit("lazy_rescale", &C::lazy_rescale, manner);
    visit("shares", &C::shares, manner);
    visit("prefixes", &C::prefixes, manner);
    visit("split", &C::split, manner);
    visit("exact_max", &C::exact_max, option);
    visit("head_parts", &C::head_parts, manner);
}

// Calls visit(name, value) for every field; values may be set where the config may.
template <class Config, class Visit>
constexpr void visit_fields(Config&& config, Visit&& visit) {
    visit_members([&](const char* name, auto member, FieldGroup) { visit(name, config.*member); });
}

// Gives a group's fields the values of KernelConfig{}.
constexpr void reset(KernelConfig& config, FieldGroup group) {
    visit_members([&](const char*, auto member, FieldGroup of) {
        if (of == group) config.*member = KernelConfig{}.*member;
    });
}

namespace counting {

struct AnyValue {
    template <class T>
    operator T() const;
};

// The fields of an aggregate: as many values as make one.
template <class T, class... Values>
consteval int fields_of() {
    if constexpr (requires { T{Values{}..., AnyValue{}}; })
        return fields_of<T, Values..., AnyValue>();
    else
        return sizeof...(Values);
}

consteval int visited() {
    int count = 0;
    visit_members([&](auto...) { ++count; });
    return count;
}

}  // namespace counting

static_assert(counting::visited() == counting::fields_of<KernelConfig>(), "a field is not listed, or is no more");

}  // namespace flashtile::gpu
