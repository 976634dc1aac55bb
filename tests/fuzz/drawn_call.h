// drawn_call.h: the arguments of one call, drawn from a fuzzer's bytes: those of a small legal problem, and then a few
// of them changed to what is wrong, or strange, or enormous.
#pragma once

#include <flashtile/flashtile.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdint>
#include <list>
#include <vector>

namespace flashtile::fuzz {

class DrawnCall {
public:
    enum class Kind { forward, backward, dropout_mask };

    explicit DrawnCall(FuzzedDataProvider& draw);
    DrawnCall(const DrawnCall&) = delete;
    DrawnCall& operator=(const DrawnCall&) = delete;

    // The call itself, with these options.
    flashtile_status run(const flashtile_options* options) const;
    // Its workspace function; of a dropout mask, which has none, what `run` does.
    flashtile_status plan(const flashtile_options* options, std::size_t& bytes) const;

    Kind kind() const { return kind_; }
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
        std::int64_t batch, seqlen_q, seqlen_k, heads, kv_heads, head_dim, head_dim_v;
        bool packed;
    };

    std::vector<const flashtile_tensor*> tensors(bool output) const;
    void draw_options(FuzzedDataProvider& draw);
    void draw_attention(FuzzedDataProvider& draw);
    void draw_lengths(FuzzedDataProvider& draw, Sizes& sizes, std::array<std::int64_t, 2>& totals);
    void draw_damage(FuzzedDataProvider& draw);
    void change(Argument& argument, FuzzedDataProvider& draw);

    Argument& add(const flashtile_tensor** where, std::int32_t dtype, const std::vector<std::int64_t>& shape,
                  FuzzedDataProvider& draw, bool output = false);

    Kind kind_;
    flashtile_options options_ = FLASHTILE_OPTIONS_INIT;
    flashtile_inputs inputs_ = FLASHTILE_INPUTS_INIT;
    flashtile_forward_outputs outputs_ = FLASHTILE_FORWARD_OUTPUTS_INIT;
    flashtile_gradients gradients_ = FLASHTILE_GRADIENTS_INIT;
    const flashtile_tensor* keep_ = nullptr;
    std::list<Argument> arguments_;
    std::uint64_t seed_ = 0;
    flashtile_executor executor_{};
};

}  // namespace flashtile::fuzz
