"""Calls of attention on a Cache, which the benchmark times: flashtile's, and its peers'. Each function prepares what a
call needs and returns the call."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# flashtile is imported in the functions: first the run must have said which library it is to load.


def decode(cache):
    from flashtile import attention
    return lambda: attention(cache.q, cache.k, cache.v, causal=True, seqused_k=cache.used, block_table=cache.table)


def dense(cache):
    """Forward as for training: all keys of a dense cache."""
    from flashtile import attention
    return lambda: attention(cache.q, cache.k, cache.v, causal=True)


def packed(cache):
    """The same queries, packed."""
    from flashtile import attention
    batch, queries = cache.q.shape[:2]
    starts = cache.integers([b * queries for b in range(batch + 1)])
    q = cache.q.flatten(0, 1)
    return lambda: attention(q, cache.k, cache.v, causal=True, cu_seqlens_q=starts, max_seqlen_q=queries,
                             seqused_k=cache.used, block_table=cache.table).unflatten(0, (batch, queries))


def prefix_stated(cache):
    from flashtile import attention
    groups, lengths = cache.integers([0, len(cache.lengths)]), cache.integers([cache.prefix])
    return lambda: attention(cache.q, cache.k, cache.v, causal=True, seqused_k=cache.used, block_table=cache.table,
                             prefix_groups=groups, prefix_lengths=lengths)


def append_and_decode(cache):
    from flashtile import Append, attention
    new = Append(cache.new_k, cache.new_v, rotary_cos=cache.cos, rotary_sin=cache.sin)
    return lambda: attention(cache.q, cache.k, cache.v, causal=True, seqused_k=cache.before, block_table=cache.table,
                             append=new)


def with_kvcache(cache):
    from flashtile.flash_attn import flash_attn_with_kvcache
    return lambda: flash_attn_with_kvcache(cache.q, cache.k, cache.v, cache_seqlens=cache.used, causal=True,
                                           block_table=cache.table)


def with_kvcache_appending(cache):
    from flashtile.flash_attn import flash_attn_with_kvcache
    return lambda: flash_attn_with_kvcache(cache.q, cache.k, cache.v, cache.new_k, cache.new_v, cache.cos, cache.sin,
                                           cache_seqlens=cache.before, causal=True, block_table=cache.table,
                                           rotary_interleaved=False)


def fa3_decode(cache):
    import fa3  # FlashAttention3.load has said where
    return lambda: fa3.with_cache(cache.q, cache.k, cache.v, cache.used, cache.table)


def fa3_append_and_decode(cache):
    """fa3.with_cache does not append; the operator that it calls does."""
    return lambda: torch.ops.flash_attn_x.fwd(
        cache.q, cache.k, cache.v, k_new=cache.new_k, v_new=cache.new_v, softmax_scale=cache.q.shape[-1] ** -0.5,
        is_causal=True, seqused_k=cache.before, page_table=cache.table, rotary_cos=cache.cos, rotary_sin=cache.sin,
        is_rotary_interleaved=False, num_splits=0)[0]


def cudnn_decode(cache):
    """A query on all keys of a dense cache: no mask is needed."""
    q, k, v = (x.transpose(1, 2) for x in (cache.q, cache.k, cache.v))

    def attend():
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=cache.group > 1).transpose(1, 2)

    return attend
