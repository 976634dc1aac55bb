// drawn_call.cpp: see drawn_call.h.
#include "drawn_call.h"

#include <algorithm>
#include <numeric>

#include "drawn_numbers.h"
#include "memory.h"

namespace flashtile::fuzz {
namespace {

__extension__ using Wide = __int128;

constexpr Wide most_work = 1 << 24;

// Row-major in a drawn order of the outer dimensions, with a gap after some; an input may repeat a dimension.
void draw_strides(flashtile_tensor& view, bool output, FuzzedDataProvider& draw) {
    std::array<int, FLASHTILE_MAX_RANK> order{};  // innermost first
    const auto rank = static_cast<std::size_t>(view.rank);
    std::iota(order.begin(), order.begin() + view.rank, 0);
    std::reverse(order.begin(), order.begin() + view.rank);
    if (rank > 2 && draw.ConsumeBool())
        std::swap(order[1], order[draw.ConsumeIntegralInRange<std::size_t>(2, rank - 1)]);
    std::int64_t stride = 1;
    for (std::size_t n = 0; n < rank; ++n) {
        view.stride[order[n]] = stride;
        if (n > 0 && !output && one_in(8, draw)) {
            view.stride[order[n]] = 0;
            continue;
        }
        stride *= std::max<std::int64_t>(view.shape[order[n]], 1);
        if (one_in(6, draw)) stride += draw.ConsumeIntegralInRange(1, 5);
    }
}

void serial_for(void*, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
    for (std::int64_t n = 0; n < count; ++n) task(arg, n);
}

}  // namespace

DrawnCall::DrawnCall(FuzzedDataProvider& draw)
    : kind_(draw.PickValueInArray({Kind::forward, Kind::forward, Kind::forward, Kind::forward, Kind::backward,
                                   Kind::backward, Kind::dropout_mask, Kind::merge, Kind::append_kv, Kind::append_kv,
                                   Kind::quantize})) {
    fill_memory(std::byte{draw.ConsumeIntegral<std::uint8_t>()});
    draw_options(draw);
    if (kind_ == Kind::dropout_mask) {
        Shape shape(4);
        for (auto& length : shape) length = size(0, 5, draw);
        add(&keep_, FLASHTILE_BOOL, shape, draw, true);
    } else if (kind_ == Kind::merge) {
        draw_merge(draw);
    } else if (kind_ == Kind::append_kv) {
        draw_append(draw);
    } else if (kind_ == Kind::quantize) {
        draw_quantize(draw);
    } else {
        draw_attention(draw);
    }
    for (int changes = draw.ConsumeIntegralInRange(0, 3); changes > 0; --changes) draw_damage(draw);
    for (Argument& argument : arguments_) {
        if (argument.where == nullptr) continue;
        if (argument.lengths && !extent(argument.view)) continue;  // absent: it would be read where no memory is
        *argument.where = &argument.view;
    }
}

void DrawnCall::draw_options(FuzzedDataProvider& draw) {
    options_.threads = draw.ConsumeIntegralInRange(0, 2);
    if (draw.ConsumeBool()) return;
    options_.causal = draw.ConsumeIntegralInRange(0, 2);
    options_.alignment = draw.ConsumeIntegralInRange(0, 1);
    options_.window_left = draw.ConsumeIntegralInRange(-1, 4);
    options_.window_right = draw.ConsumeIntegralInRange(-1, 4);
    options_.has_scale = draw.ConsumeBool();
    options_.scale = strange_number(draw);
    options_.softcap = draw.ConsumeBool() ? 3.0f : 0.0f;
    options_.dropout = draw.ConsumeBool() ? draw.ConsumeProbability<double>() : 0.0;
    seed_ = draw.ConsumeIntegral<std::uint64_t>();
    if (draw.ConsumeBool())
        options_.seed_ptr = &seed_;
    else
        options_.seed = seed_;
    options_.deterministic = draw.ConsumeBool();
    options_.batch_invariant = draw.ConsumeBool();
    options_.exact_max = draw.ConsumeBool();
    options_.isa = draw.ConsumeIntegralInRange(0, 5);
    if (one_in(4, draw)) options_.attention_chunk = size(0, 5, draw);
    if (one_in(4, draw)) options_.num_splits = draw.ConsumeIntegralInRange(0, 4);
    if (one_in(4, draw)) options_.diagonal = draw.ConsumeIntegralInRange(-6, 6);
    if (one_in(4, draw)) options_.origin_j = size(0, 20, draw);
    if (one_in(8, draw)) options_.sm_limit = draw.ConsumeIntegralInRange(0, 3);
    if (one_in(8, draw)) {
        executor_ = {serial_for, nullptr, draw.ConsumeIntegralInRange(0, 3)};
        options_.executor = &executor_;
    }
}

DrawnCall::Argument& DrawnCall::add(const flashtile_tensor** where, std::int32_t dtype, const Shape& shape,
                                    FuzzedDataProvider& draw, bool output) {
    Argument argument{where, {}, output, false};
    flashtile_tensor& view = argument.view;
    view.dtype = dtype;
    view.device_type = FLASHTILE_CPU;
    view.rank = static_cast<std::int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape);
    draw_strides(view, output, draw);
    std::byte* data = place(arguments_.size());
    if (!output)
        for (const std::uint8_t byte : draw.ConsumeBytes<std::uint8_t>(8)) *data++ = std::byte{byte};
    view.data = place(arguments_.size()) + size_of(dtype) * draw.ConsumeIntegralInRange<std::size_t>(0, 3);
    return arguments_.emplace_back(argument);
}

void DrawnCall::draw_attention(FuzzedDataProvider& draw) {
    Sizes s{};
    s.dtype = draw.PickValueInArray({FLASHTILE_FP32, FLASHTILE_FP16, FLASHTILE_BF16});
    s.batch = size(0, 2, draw), s.seqlen_q = size(0, 7, draw), s.seqlen_k = size(0, 7, draw);
    s.kv_heads = size(1, 2, draw), s.heads = s.kv_heads * size(1, 2, draw);
    s.head_dim = size(1, 9, draw), s.head_dim_v = size(1, 9, draw);
    s.packed = one_in(3, draw);
    const bool forward = kind_ == Kind::forward, serving = one_in(forward ? 2 : 20, draw);
    if (serving) draw_cache(draw, s);
    std::int64_t total_q = 0, total_k = 0;
    if (s.packed) {
        total_q = add_cumulative(&inputs_.cu_seqlens_q, s.batch, s.seqlen_q, draw);
        if (!s.cache) total_k = add_cumulative(&inputs_.cu_seqlens_k, s.batch, s.seqlen_k, draw);
        inputs_.max_seqlen_q = s.seqlen_q;
        inputs_.max_seqlen_k = s.seqlen_k;
    }
    if (serving) draw_serving(draw, s, total_q);

    const auto dtype = s.dtype;
    const auto queries = [&](std::int64_t d) {
        return s.packed ? Shape{total_q, s.heads, d} : Shape{s.batch, s.seqlen_q, s.heads, d};
    };
    const auto keys = [&](std::int64_t d) {
        if (s.cache) return Shape{s.pages, s.page_size, s.kv_heads, d};
        return s.packed ? Shape{total_k, s.kv_heads, d} : Shape{s.batch, s.seqlen_k, s.kv_heads, d};
    };
    const Shape q = queries(s.head_dim), k = keys(s.head_dim), v = keys(s.head_dim_v), out = queries(s.head_dim_v),
                lse = s.packed ? Shape{s.heads, total_q} : Shape{s.batch, s.heads, s.seqlen_q};
    const bool has_new = inputs_.append != nullptr;  // for k and v, which are then written
    const bool e4m3 = forward && one_in(4, draw), e4m3_queries = e4m3 && draw.ConsumeBool();
    const auto keys_dtype = e4m3 ? FLASHTILE_FP8_E4M3 : dtype;
    add(&inputs_.q, e4m3_queries ? FLASHTILE_FP8_E4M3 : dtype, q, draw);
    add(&inputs_.k, keys_dtype, k, draw, has_new), add(&inputs_.v, keys_dtype, v, draw, has_new);
    if (e4m3) draw_scales(draw, s, e4m3_queries);

    const auto broadcast = [&] {
        Shape shape = {s.batch, s.heads, s.seqlen_q, s.seqlen_k};
        for (auto& n : shape)
            if (one_in(3, draw)) n = 1;
        return shape;
    };
    Shape bias;
    const auto bias_dtype = draw.ConsumeBool() ? dtype : FLASHTILE_FP32;
    if (one_in(3, draw)) add(&inputs_.bias, bias_dtype, bias = broadcast(), draw);
    if (one_in(3, draw)) add(&inputs_.mask, FLASHTILE_BOOL, broadcast(), draw);
    if (one_in(3, draw))
        add(&inputs_.alibi_slopes, FLASHTILE_FP32, draw.ConsumeBool() ? Shape{s.heads} : Shape{s.batch, s.heads}, draw);
    if (one_in(3, draw)) add(&inputs_.sinks, draw.ConsumeBool() ? dtype : FLASHTILE_FP32, {s.heads}, draw);
    if (has_new || one_in(3, draw))
        add_list(&inputs_.seqused_k, FLASHTILE_INT32, {s.batch}, draw, [&](std::int64_t) {
            return size(0, std::max<std::int64_t>(s.seqlen_k + (has_new ? -1 : 1), 0), draw);
        });
    for (const flashtile_tensor** list : {&inputs_.diagonals, &inputs_.origins_i, &inputs_.origins_j})
        if (one_in(6, draw))
            add_list(list, FLASHTILE_INT64, {s.batch}, draw, [&](std::int64_t) { return size(-1, 20, draw); });

    if (forward) {
        add(&outputs_.out, one_in(5, draw) ? FLASHTILE_FP32 : dtype, out, draw, true);
        if (draw.ConsumeBool()) add(&outputs_.lse, FLASHTILE_FP32, lse, draw, true);
        return;
    }
    add(&gradients_.out, dtype, out, draw), add(&gradients_.dout, dtype, out, draw);
    add(&gradients_.lse, FLASHTILE_FP32, lse, draw);
    if (draw.ConsumeBool()) add(&gradients_.dlse, FLASHTILE_FP32, lse, draw);
    add(&gradients_.dq, dtype, q, draw, true), add(&gradients_.dk, dtype, k, draw, true);
    add(&gradients_.dv, dtype, v, draw, true);
    if (!bias.empty() && draw.ConsumeBool()) add(&gradients_.dbias, bias_dtype, bias, draw, true);
    if (one_in(3, draw)) add(&gradients_.dsinks, draw.ConsumeBool() ? dtype : FLASHTILE_FP32, {s.heads}, draw, true);
}

// Of whole tensors, heads or blocks; a sequence, a page and a cache's row have one block at most.
void DrawnCall::draw_scales(FuzzedDataProvider& draw, const Sizes& s, bool of_queries) {
    if (draw.ConsumeBool()) inputs_.scale_block = draw.PickValueInArray({64, 128});
    const auto shape = [&](std::int64_t heads, std::int64_t outer, std::int64_t rows, bool packed) {
        if (one_in(3, draw)) return Shape{};
        if (inputs_.scale_block == 0) return Shape{s.batch, s.kv_heads};
        return packed ? Shape{heads, outer} : Shape{outer, heads, std::min<std::int64_t>(rows, 1)};
    };
    if (of_queries && draw.ConsumeBool())
        add(&inputs_.q_scale, FLASHTILE_FP32, shape(s.heads, s.batch, s.seqlen_q, s.packed), draw);
    for (const flashtile_tensor** scale : {&inputs_.k_scale, &inputs_.v_scale})
        if (draw.ConsumeBool())
            add(scale, FLASHTILE_FP32,
                shape(s.kv_heads, s.cache ? s.pages : s.batch, s.cache ? s.page_size : s.seqlen_k,
                      s.packed && !s.cache),
                draw);
}

// One thing made wrong or strange.
void DrawnCall::draw_damage(FuzzedDataProvider& draw) {
    switch (draw.ConsumeIntegralInRange(0, 11)) {
        case 0:
            options_.window_left = strange_size(draw);
            break;
        case 1:
            options_.window_right = strange_size(draw);
            break;
        case 2:
            (draw.ConsumeBool() ? inputs_.max_seqlen_q : inputs_.max_seqlen_k) = strange_size(draw);
            break;
        case 3:
            options_.softcap = strange_number(draw);
            break;
        case 4:
            options_.dropout = static_cast<double>(strange_number(draw));
            break;
        case 5:
            *draw.PickValueInArray({&options_.causal, &options_.alignment, &options_.isa, &options_.num_splits,
                                    &options_.sm_limit, &append_.rotary_interleaved, &inputs_.scale_block,
                                    &append_.scale_block, &quantize_.scale_block}) =
                draw.ConsumeIntegral<std::int32_t>();
            break;
        case 6:
            options_.threads = draw.PickValueInArray({-1, 3, 4097, INT32_MIN, INT32_MAX});
            break;
        case 7:
            *draw.PickValueInArray({&options_.size, &inputs_.size, &outputs_.size, &gradients_.size, &merge_.size,
                                    &append_.size, &quantize_.size}) = draw.ConsumeIntegralInRange<std::size_t>(0, 280);
            break;
        case 8:
            *draw.PickValueInArray({&options_.attention_chunk, &append_.rotary_begin, &options_.diagonal,
                                    &options_.origin_b, &options_.origin_h, &options_.origin_i, &options_.origin_j}) =
                strange_size(draw);
            break;
        default:
            change(*std::next(arguments_.begin(), draw.ConsumeIntegralInRange<std::ptrdiff_t>(
                                                      0, static_cast<std::ptrdiff_t>(arguments_.size()) - 1)),
                   draw);
    }
}

void DrawnCall::change(Argument& argument, FuzzedDataProvider& draw) {
    flashtile_tensor& view = argument.view;
    const auto dimension = draw.ConsumeIntegralInRange<std::size_t>(0, FLASHTILE_MAX_RANK - 1);
    switch (draw.ConsumeIntegralInRange(0, 9)) {
        case 0:
            argument.where = nullptr;
            break;
        case 1:
            view.dtype = draw.ConsumeIntegralInRange(-1, 8);
            break;
        case 2:
            (draw.ConsumeBool() ? view.device_type : view.device_id) = draw.ConsumeIntegralInRange(-1, 3);
            break;
        case 3:
            view.rank = draw.ConsumeIntegralInRange(-1, FLASHTILE_MAX_RANK + 1);
            break;
        case 4:
            view.shape[dimension] = strange_size(draw);
            break;
        case 5:
            view.stride[dimension] = strange_size(draw);
            break;
        case 6:
            view.data = nullptr;
            break;
        case 7:
            if (view.data != nullptr)
                view.data = static_cast<std::byte*>(view.data) + draw.ConsumeIntegralInRange(1, 3);
            break;
        default: {  // onto another tensor, or beside it
            const auto other = draw.ConsumeIntegralInRange<std::size_t>(0, arguments_.size() - 1);
            view.data = place(other) + draw.ConsumeIntegralInRange<std::size_t>(0, 63) * 4;
        }
    }
}

bool DrawnCall::is_seen(const void* field) const {
    const auto beyond = [field](const auto& given) {
        const auto* at = static_cast<const std::byte*>(field);
        const auto* begin = reinterpret_cast<const std::byte*>(&given);
        return at >= begin && at < begin + sizeof given && at >= begin + given.size;
    };
    return !(beyond(inputs_) || beyond(outputs_) || beyond(gradients_) || beyond(merge_) || beyond(append_) ||
             beyond(quantize_));
}

bool DrawnCall::appends() const {
    return inputs_.append != nullptr && is_seen(&inputs_.append);
}

std::vector<const flashtile_tensor*> DrawnCall::tensors(bool output) const {
    std::vector<const flashtile_tensor*> views;
    for (const Argument& argument : arguments_) {
        if (argument.where == nullptr || *argument.where == nullptr || !is_seen(argument.where)) continue;
        bool written = argument.output;
        if (argument.where == &inputs_.k) written &= appends();
        // Without new values v is not written, and may be a view of k's memory.
        if (argument.where == &inputs_.v) written &= appends() && append_.v != nullptr && is_seen(&append_.v);
        if (written == output) views.push_back(&argument.view);
    }
    return views;
}

bool DrawnCall::can_run() const {
    for (const bool output : {false, true})
        for (const flashtile_tensor* view : tensors(output))
            if (!extent(*view)) return false;
    // Rows of a broadcast tensor, and sequences without rows, take no memory, and yet they take time; and a table may
    // name a page again and again.
    Wide work = 1;
    for (const flashtile_tensor* view :
         {inputs_.q, inputs_.k, inputs_.block_table, append_.k, append_.q, merge_.outs, merge_.lses, quantize_.x})
        for (int n = 0; view != nullptr && n < std::clamp(view->rank, 0, FLASHTILE_MAX_RANK) && work <= most_work; ++n)
            work *= std::max<std::int64_t>(view->shape[n], 1);
    // dbias goes over as many rows and columns as the longest sequence is said to have.
    if (kind_ == Kind::backward && gradients_.dbias != nullptr)
        for (const std::int64_t seqlen : {inputs_.max_seqlen_q, inputs_.max_seqlen_k})
            if (work <= most_work) work *= std::max<std::int64_t>(seqlen, 1);
    return work <= most_work;
}

flashtile_status DrawnCall::run(const flashtile_options* options) const {
    switch (kind_) {
        case Kind::forward:
            return flashtile_forward(options, &inputs_, &outputs_);
        case Kind::backward:
            return flashtile_backward(options, &inputs_, &gradients_);
        case Kind::merge:
            return flashtile_merge(options, &merge_);
        case Kind::append_kv:
            return flashtile_append_kv(options, &append_);
        case Kind::quantize:
            return flashtile_quantize(options, &quantize_);
        case Kind::dropout_mask:
            break;
    }
    return flashtile_dropout_mask(options, keep_);
}

flashtile_status DrawnCall::plan(const flashtile_options* options, std::size_t& bytes) const {
    if (kind_ == Kind::forward) return flashtile_forward_workspace(options, &inputs_, &outputs_, &bytes);
    return flashtile_backward_workspace(options, &inputs_, &gradients_, &bytes);
}

}  // namespace flashtile::fuzz
