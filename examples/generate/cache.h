// cache.h: the keys and values of all tokens so far, in every layer. They lie in pages of some tokens each. A request
// takes as many pages as it may need when it joins and gives them back when it leaves, so that memory follows the
// requests' lengths and not the longest of them. How flashtile is told what lies where is decided here alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <vector>

#include "config.h"
#include "step.h"

namespace gemma {

class KeyValueCache {
public:
    static constexpr std::int64_t page_size = 64;
    static std::int64_t pages_for(std::int64_t tokens) { return (tokens + page_size - 1) / page_size; }

    // `pages` for all places together, and room for `longest` tokens at most in one.
    KeyValueCache(const Config& config, std::int64_t places, std::int64_t pages, std::int64_t longest,
                  flashtile::dtype dtype);

    flashtile::dtype dtype() const { return dtype_; }
    std::int64_t longest() const { return longest_; }

    // Pages for a request of so many tokens at most; there are enough of them free.
    void take(std::size_t place, std::int64_t tokens);
    void give_back(std::size_t place);

    // Writes k and v of the step's tokens, (tokens, kv_heads, head_dim), behind what the layer holds; `append` has
    // them, q, and the rotation.
    void append(std::int64_t layer, const Step& step, const flashtile::options& options, flashtile::append_args append);

    // q of the step's tokens, (tokens, heads, head_dim), attends to what the layer holds of their places.
    void attend(std::int64_t layer, const Step& step, flashtile::options options, const flashtile::tensor& q,
                const flashtile::tensor& out) const;

private:
    struct Layer {
        std::vector<std::byte> keys, values;  // (pages, page_size, kv_heads, head_dim)
    };

    flashtile::tensor pages_of(const std::vector<std::byte>& memory) const;
    flashtile::tensor block_table() const;

    std::int64_t places_, pages_, longest_, kv_heads_, head_dim_;
    flashtile::dtype dtype_;
    std::vector<Layer> layers_;
    std::vector<std::int32_t> table_;  // (places, pages_for(longest)): which pages a place has, in order
    std::vector<std::int64_t> taken_;  // by place: how many of them are its own
    std::vector<std::int32_t> free_;
};

}  // namespace gemma
