// drawn_call.h: the arguments of one call, drawn from a fuzzer's bytes: those of a small legal problem, and then a few
// of them changed to what is wrong, or strange, or enormous.
#pragma once

#include <flashtile/flashtile.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

namespace flashtile::fuzz {

class DrawnCall {
public:
    enum class Kind { forward, backward, dropout_mask, merge, append_kv, quantize };

    explicit DrawnCall(FuzzedDataProvider& draw);
    DrawnCall(const DrawnCall&) = delete;
    DrawnCall& operator=(const DrawnCall&) = delete;

    // The call itself, with these options.
    flashtile_status run(const flashtile_options* options) const;
    // Its workspace function, where it has one.
    bool has_workspace() const { return kind_ == Kind::forward || kind_ == Kind::backward; }
    flashtile_status plan(const flashtile_options* options, std::size_t& bytes) const;

    // An output may be an input: a part that is merged in place, queries that are rotated so, values that are a view of
    // the keys' cache.
    bool in_place() const { return kind_ == Kind::merge || kind_ == Kind::append_kv || appends(); }
    const flashtile_options& options() const { return options_; }
    // All tensors lie within the memory, and the work is done in an instant.
    bool can_run() const;

    std::vector<const flashtile_tensor*> inputs() const { return tensors(false); }
    std::vector<const flashtile_tensor*> outputs() const { return tensors(true); }

private:
    struct Argument {
        const flashtile_tensor** where;  // in the structs below
        flashtile_tensor view;
        bool output;
        bool lengths;  // read while the arguments are checked: it must not reach out of the memory
    };
    struct Sizes {
        std::int32_t dtype;
        std::int64_t batch, seqlen_q, seqlen_k, heads, kv_heads, head_dim, head_dim_v;
        bool packed, cache;
        std::int64_t pages, page_size;  // of a cache, or its rows and their length
    };
    using Shape = std::vector<std::int64_t>;

    std::vector<const flashtile_tensor*> tensors(bool output) const;
    // Whether a struct's size, which may be that of an older version, reaches to a field.
    bool is_seen(const void* field) const;
    bool appends() const;
    void draw_options(FuzzedDataProvider& draw);
    void draw_attention(FuzzedDataProvider& draw);
    void draw_merge(FuzzedDataProvider& draw);
    void draw_append(FuzzedDataProvider& draw);
    void draw_quantize(FuzzedDataProvider& draw);
    void draw_scales(FuzzedDataProvider& draw, const Sizes& sizes, bool of_queries);
    void draw_cache(FuzzedDataProvider& draw, Sizes& sizes);
    void draw_serving(FuzzedDataProvider& draw, const Sizes& sizes, std::int64_t total_q);
    void draw_new_keys(FuzzedDataProvider& draw, const Sizes& sizes, const Shape& rows);
    void draw_damage(FuzzedDataProvider& draw);
    void change(Argument& argument, FuzzedDataProvider& draw);

    Argument& add(const flashtile_tensor** where, std::int32_t dtype, const Shape& shape, FuzzedDataProvider& draw,
                  bool output = false);
    // A list of one or two dimensions that the checks read: element n is value(n), or seldom what is strange.
    void add_list(const flashtile_tensor** where, std::int32_t dtype, const Shape& shape, FuzzedDataProvider& draw,
                  const std::function<std::int64_t(std::int64_t n)>& value);
    // Of sequences of up to `longest` rows; the total, with a few rows after the last.
    std::int64_t add_cumulative(const flashtile_tensor** where, std::int64_t batch, std::int64_t longest,
                                FuzzedDataProvider& draw);
    static std::int32_t any_int(FuzzedDataProvider& draw);

    Kind kind_;
    flashtile_options options_ = FLASHTILE_OPTIONS_INIT;
    flashtile_inputs inputs_ = FLASHTILE_INPUTS_INIT;
    flashtile_forward_outputs outputs_ = FLASHTILE_FORWARD_OUTPUTS_INIT;
    flashtile_gradients gradients_ = FLASHTILE_GRADIENTS_INIT;
    const flashtile_tensor* keep_ = nullptr;
    flashtile_merge_tensors merge_ = FLASHTILE_MERGE_TENSORS_INIT;
    flashtile_append_tensors append_ = FLASHTILE_APPEND_TENSORS_INIT;  // of a call, or within forward
    flashtile_quantize_tensors quantize_ = FLASHTILE_QUANTIZE_TENSORS_INIT;
    std::list<Argument> arguments_;
    std::uint64_t seed_ = 0;
    flashtile_executor executor_{};
};

}  // namespace flashtile::fuzz
