// drawn_serving.cpp: what serving adds to a drawn call: caches, lists of one number a sequence, trees, sinks, new keys
// that are appended; and calls of merge.
#include <algorithm>
#include <cstring>

#include "drawn_call.h"
#include "drawn_numbers.h"
#include "memory.h"

namespace flashtile::fuzz {

void DrawnCall::add_list(const flashtile_tensor** where, std::int32_t dtype, const Shape& shape,
                         FuzzedDataProvider& draw, const std::function<std::int64_t(std::int64_t n)>& value) {
    Argument& list = add(where, dtype, shape, draw);
    list.lengths = true;
    const auto last = static_cast<std::size_t>(list.view.rank - 1);
    list.view.stride[last] = 1;
    const std::int64_t columns = shape[last];
    for (std::int64_t n = 0; n < (shape.size() == 1 ? columns : shape[0] * columns); ++n) {
        const std::int64_t stored = one_in(30, draw) ? strange_size(draw) : value(n);
        const std::int64_t at = shape.size() == 1 ? n : n / columns * list.view.stride[0] + n % columns;
        const std::size_t bytes = size_of(dtype);
        std::memcpy(static_cast<std::byte*>(list.view.data) + at * static_cast<std::int64_t>(bytes), &stored, bytes);
    }
}

std::int64_t DrawnCall::add_cumulative(const flashtile_tensor** where, std::int64_t batch, std::int64_t longest,
                                       FuzzedDataProvider& draw) {
    std::int64_t sum = 0;
    add_list(where, any_int(draw), {batch + 1}, draw, [&](std::int64_t n) {
        if (n > 0) sum += size(0, longest, draw);
        return sum;
    });
    return sum + size(0, 2, draw);
}

std::int32_t DrawnCall::any_int(FuzzedDataProvider& draw) {
    return draw.ConsumeBool() ? FLASHTILE_INT64 : FLASHTILE_INT32;
}

// The cache's sizes, and what says where a sequence's keys lie in it.
void DrawnCall::draw_cache(FuzzedDataProvider& draw, Sizes& s) {
    s.cache = one_in(3, draw);
    if (!s.cache) return;
    s.page_size = size(1, 5, draw);
    s.pages = size(1, 6, draw);
    if (draw.ConsumeBool()) {
        const std::int64_t most = size(0, 3, draw);
        s.seqlen_k = most * s.page_size;
        add_list(&inputs_.block_table, FLASHTILE_INT32, {s.batch, most}, draw,
                 [&](std::int64_t) { return size(0, s.pages - 1, draw); });
        return;
    }
    s.seqlen_k = s.page_size;
    if (s.packed && draw.ConsumeBool())
        s.pages = std::max(s.pages, s.batch);
    else
        add_list(&inputs_.cache_batch_idx, any_int(draw), {s.batch}, draw,
                 [&](std::int64_t) { return size(0, s.pages - 1, draw); });
}

void DrawnCall::draw_serving(FuzzedDataProvider& draw, const Sizes& s, std::int64_t total_q) {
    const auto up_to = [&](std::int64_t most) { return [&draw, most](std::int64_t) { return size(0, most, draw); }; };
    const Shape a_sequence = {s.batch};
    if (one_in(4, draw)) add_list(&inputs_.first_k, FLASHTILE_INT32, a_sequence, draw, up_to(s.seqlen_k + 1));
    if (one_in(4, draw)) add_list(&inputs_.seqused_q, FLASHTILE_INT32, a_sequence, draw, up_to(s.seqlen_q));
    if (one_in(4, draw)) {
        const auto one_or = [&](std::int64_t n) { return draw.ConsumeBool() ? 1 : n; };
        add(&inputs_.tree_mask, FLASHTILE_BOOL, {one_or(s.batch), one_or(s.heads), s.seqlen_q, s.seqlen_q}, draw);
    }
    if (one_in(inputs_.tree_mask != nullptr ? 2 : 12, draw))
        add_list(&inputs_.positions, FLASHTILE_INT32, s.packed ? Shape{total_q} : Shape{s.batch, s.seqlen_q}, draw,
                 up_to(9));
    if (one_in(5, draw)) {
        const std::int64_t groups = size(0, 2, draw);
        std::int64_t sum = 0;
        add_list(&inputs_.prefix_groups, FLASHTILE_INT32, {groups + 1}, draw, [&](std::int64_t n) {
            if (n > 0) sum = std::min(s.batch, sum + size(0, 2, draw));
            return sum;
        });
        add_list(&inputs_.prefix_lengths, FLASHTILE_INT32, {groups}, draw, up_to(s.seqlen_k));
    }
    if (s.cache && one_in(3, draw)) {
        inputs_.append = &append_;
        draw_new_keys(draw, s, s.packed ? Shape{total_q} : Shape{s.batch, s.seqlen_q});
    }
}

// New keys, where they go if not to a table's pages, and how they and queries, of `rows`, are rotated.
void DrawnCall::draw_new_keys(FuzzedDataProvider& draw, const Sizes& s, const Shape& rows) {
    const std::int64_t longest = size(0, 3, draw);
    Shape new_rows = {s.batch, longest};
    if (one_in(3, draw)) new_rows = {add_cumulative(&append_.cu_seqlens_k_new, s.batch, longest, draw)};
    const auto of = [](Shape shape, std::int64_t heads, std::int64_t d) {
        shape.insert(shape.end(), {heads, d});
        return shape;
    };
    add(&append_.k, s.dtype, of(new_rows, s.kv_heads, s.head_dim), draw);
    if (!one_in(5, draw)) add(&append_.v, s.dtype, of(new_rows, s.kv_heads, s.head_dim_v), draw);
    if (one_in(5, draw)) {
        // Mostly one after the other: two new rows must not go to one place.
        const std::int64_t first = size(-1, 3, draw);
        add_list(&append_.slots, FLASHTILE_INT64, new_rows, draw, [&](std::int64_t n) { return first + n; });
        for (Argument& list : arguments_)
            if (list.where == &append_.slots && list.view.rank == 2) list.view.stride[0] = list.view.shape[1];
    }
    if (s.head_dim < 2 || draw.ConsumeBool()) return;
    const Shape table = {size(1, 30, draw), size(1, s.head_dim / 2, draw)};
    const auto dtype = draw.PickValueInArray({FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16});
    add(&append_.rotary_cos, dtype, table, draw), add(&append_.rotary_sin, dtype, table, draw);
    append_.rotary_begin = one_in(4, draw) ? size(0, s.head_dim, draw) : 0;
    append_.rotary_interleaved = draw.ConsumeBool();
    const auto position = [&](std::int64_t) { return size(0, table[0] - 1, draw); };
    if (one_in(4, draw)) add_list(&append_.rotary_offsets, any_int(draw), {s.batch}, draw, position);
    if (one_in(4, draw)) add_list(&append_.positions, any_int(draw), new_rows, draw, position);
    if (one_in(4, draw)) add_list(&append_.positions_q, any_int(draw), rows, draw, position);
    if (draw.ConsumeBool()) add(&append_.q_out, s.dtype, of(rows, s.heads, s.head_dim), draw, true);
}

void DrawnCall::draw_append(FuzzedDataProvider& draw) {
    Sizes s{};
    s.dtype = draw.PickValueInArray({FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16});
    s.batch = size(0, 3, draw), s.seqlen_q = size(0, 4, draw);
    s.kv_heads = size(1, 2, draw), s.heads = size(1, 3, draw);
    s.head_dim = size(1, 9, draw), s.head_dim_v = size(1, 9, draw);
    s.page_size = size(1, 5, draw), s.pages = size(1, 6, draw);
    Shape rows = {s.batch, s.seqlen_q};
    if (one_in(3, draw)) rows = {add_cumulative(&append_.cu_seqlens_q, s.batch, s.seqlen_q, draw)};
    draw_new_keys(draw, s, rows);
    std::int64_t room = s.page_size;
    // Sequences have pages of their own, if there are enough: two new rows must not go to one place.
    if (draw.ConsumeBool()) {
        const std::int64_t most = size(0, 3, draw);
        room = most * s.page_size;
        add_list(&append_.block_table, FLASHTILE_INT32, {s.batch, most}, draw,
                 [&](std::int64_t n) { return std::min(n, s.pages - 1); });
    } else if (draw.ConsumeBool()) {
        add_list(&append_.cache_batch_idx, any_int(draw), {s.batch}, draw,
                 [&](std::int64_t n) { return std::min(n, s.pages - 1); });
    }
    if (!one_in(8, draw))
        add_list(&append_.cache_seqlens, any_int(draw), {s.batch}, draw,
                 [&](std::int64_t) { return size(0, room, draw); });
    add(&append_.k_cache, s.dtype, {s.pages, s.page_size, s.kv_heads, s.head_dim}, draw, true);
    if (!one_in(5, draw)) add(&append_.v_cache, s.dtype, {s.pages, s.page_size, s.kv_heads, s.head_dim_v}, draw, true);
    if (!draw.ConsumeBool()) return;
    rows.insert(rows.end(), {s.heads, s.head_dim});
    add(&append_.q, s.dtype, rows, draw);
}

void DrawnCall::draw_merge(FuzzedDataProvider& draw) {
    const std::int64_t parts = size(0, 4, draw), batch = size(0, 3, draw), rows = size(0, 5, draw),
                       heads = size(0, 3, draw), d = size(1, 9, draw);
    const auto dtype = [&] { return draw.PickValueInArray({FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16}); };
    Shape outs = {parts, batch, rows, heads, d}, lses = {parts, batch, heads, rows};
    if (one_in(3, draw)) outs = {parts, rows, heads, d}, lses = {parts, heads, rows};
    add(&merge_.outs, dtype(), outs, draw);
    add(&merge_.lses, FLASHTILE_FP32, lses, draw);
    outs.erase(outs.begin()), lses.erase(lses.begin());
    const auto place_of = [&](std::size_t argument) {
        return std::next(arguments_.begin(), static_cast<std::ptrdiff_t>(argument));
    };
    const auto output = [&](const flashtile_tensor** where, std::size_t of, std::int32_t type, const Shape& shape) {
        Argument& out = add(where, type, shape, draw, true);
        if (!one_in(3, draw)) return;
        // In place: one of the parts.
        const flashtile_tensor& all = place_of(of)->view;
        out.view = all;
        out.view.rank = all.rank - 1;
        std::copy(all.shape + 1, all.shape + all.rank, out.view.shape);
        std::copy(all.stride + 1, all.stride + all.rank, out.view.stride);
        out.view.data = static_cast<std::byte*>(all.data) + static_cast<std::int64_t>(size_of(all.dtype)) *
                                                                all.stride[0] *
                                                                size(0, std::max<std::int64_t>(parts - 1, 0), draw);
    };
    output(&merge_.out, 0, dtype(), outs);
    if (draw.ConsumeBool()) output(&merge_.lse, 1, FLASHTILE_FP32, lses);
}

void DrawnCall::draw_quantize(FuzzedDataProvider& draw) {
    const std::int64_t batch = size(0, 3, draw), rows = size(0, 6, draw), heads = size(1, 3, draw),
                       d = size(1, 9, draw);
    Shape x = {batch, rows, heads, d};
    const bool packed = one_in(3, draw);
    if (packed) x = {add_cumulative(&quantize_.cu_seqlens, batch, rows, draw), heads, d};
    add(&quantize_.x, draw.PickValueInArray({FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16}), x, draw);
    add(&quantize_.quantized, FLASHTILE_FP8_E4M3, x, draw, true);
    quantize_.scale_given = one_in(3, draw);
    if (draw.ConsumeBool()) quantize_.scale_block = draw.PickValueInArray({64, 128});
    Shape scale = packed ? Shape{heads, batch} : Shape{batch, heads, std::min<std::int64_t>(rows, 1)};
    if (quantize_.scale_block == 0) scale = draw.ConsumeBool() ? Shape{} : Shape{batch, 1};
    add(&quantize_.scale, FLASHTILE_FP32, scale, draw, quantize_.scale_given == 0);
    quantize_.has_hadamard = draw.ConsumeBool();
    quantize_.hadamard_seed = draw.ConsumeIntegral<std::uint64_t>();
    if (d < 2 || draw.ConsumeBool()) return;
    const Shape table = {size(1, 30, draw), size(1, d / 2, draw)};
    add(&quantize_.rotary_cos, FLASHTILE_FP32, table, draw), add(&quantize_.rotary_sin, FLASHTILE_FP32, table, draw);
    quantize_.rotary_begin = one_in(4, draw) ? size(0, d, draw) : 0;
    const auto position = [&](std::int64_t) { return size(0, table[0] - 1, draw); };
    if (one_in(4, draw)) add_list(&quantize_.rotary_offsets, any_int(draw), {batch}, draw, position);
    if (one_in(4, draw)) add_list(&quantize_.positions, any_int(draw), Shape(x.begin(), x.end() - 2), draw, position);
}

}  // namespace flashtile::fuzz
