// cache.h: the checks of keys and values that lie in a cache: its sizes, and which pages or rows the sequences name.
#pragma once

#include "api/checks/append_kv.h"
#include "api/checks/inputs.h"
#include "api/checks/readable_lengths.h"

namespace flashtile::api {

inline constexpr const char* kCacheShape =
    "(num_pages, page_size, kv_heads, head_dim) or (rows, seqlen, kv_heads, head_dim)";

// Whether k and v are a cache: sequences name its pages or rows, keys are appended to it, or packed queries stand
// beside keys with a batch dimension.
bool names_a_cache(const flashtile_inputs& inputs);

// Batch, lengths and the cache's sizes; also checks block_table, cache_batch_idx and prefix_groups, but for their
// entries.
void check_cache_sizes(const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, CallUnderCheck& c);

// The entries that name pages of used keys, and rows, and who shares a prefix. The host can read them.
void check_cache_values(const ReadableLengths& used_k, const NewKeys& new_k, CallUnderCheck& c);

}  // namespace flashtile::api
