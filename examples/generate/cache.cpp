#include "cache.h"

namespace gemma {

namespace ft = flashtile;

namespace {

ft::tensor integers(const std::vector<std::int32_t>& values) {
    return ft::view(values.data(), ft::dtype::int32, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

KeyValueCache::KeyValueCache(const Config& config, std::int64_t places, std::int64_t pages, std::int64_t longest,
                             ft::dtype dtype)
    : places_(places),
      pages_(pages),
      longest_(longest),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      dtype_(dtype),
      table_(static_cast<std::size_t>(places * pages_for(longest))),
      taken_(static_cast<std::size_t>(places)) {
    const auto elements = pages * page_size * kv_heads_ * head_dim_;
    const auto bytes = static_cast<std::size_t>(elements * (dtype == ft::fp32 ? 4 : 2));
    for (std::int64_t layer = 0; layer < config.layers(); ++layer)
        layers_.push_back({.keys = std::vector<std::byte>(bytes), .values = std::vector<std::byte>(bytes)});
    for (auto page = pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

void KeyValueCache::take(std::size_t place, std::int64_t tokens) {
    auto* const row = &table_[place * table_.size() / taken_.size()];
    for (taken_[place] = 0; taken_[place] < pages_for(tokens); ++taken_[place]) {
        row[taken_[place]] = free_.back();
        free_.pop_back();
    }
}

void KeyValueCache::give_back(std::size_t place) {
    const auto* const row = &table_[place * table_.size() / taken_.size()];
    while (taken_[place] > 0) free_.push_back(row[--taken_[place]]);
}

ft::tensor KeyValueCache::pages_of(const std::vector<std::byte>& memory) const {
    return ft::view(memory.data(), dtype_, {pages_, page_size, kv_heads_, head_dim_});
}

ft::tensor KeyValueCache::block_table() const {
    return ft::view(table_.data(), ft::dtype::int32, {places_, pages_for(longest_)});
}

void KeyValueCache::append(std::int64_t layer, const Step& step, const ft::options& options, ft::append_args append) {
    const auto& [keys, values] = layers_[static_cast<std::size_t>(layer)];
    append.k_cache = pages_of(keys);
    append.v_cache = pages_of(values);
    append.block_table = block_table();
    append.cache_seqlens = integers(step.before);
    append.cu_seqlens_k_new = integers(step.starts);
    append.cu_seqlens_q = append.cu_seqlens_k_new;
    ft::append_kv(options, append);
}

void KeyValueCache::attend(std::int64_t layer, const Step& step, ft::options options, const ft::tensor& q,
                           const ft::tensor& out) const {
    const auto& [keys, values] = layers_[static_cast<std::size_t>(layer)];
    options.block_table = block_table();
    options.cu_seqlens_q = integers(step.starts);
    options.max_seqlen_q = step.longest;
    options.seqused_k = integers(step.after);
    ft::forward(options, q, pages_of(keys), pages_of(values), out);
}

}  // namespace gemma
