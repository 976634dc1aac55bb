"""flash_attn_with_kvcache: attention of new queries on a cache of keys and values, which it may first append to.

It is one call of `attention`, which appends, rotates and reads the cache where it lies.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from .._append import Append
from .._attention import attention

Window = tuple[int, int]


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None, rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None, cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None, causal: bool = False, window_size: Window = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Optional[Tensor] = None, num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Attention of q (batch, seqlen_q, nheads, d) on the caches' used rows; no gradient.

    Args:
        k_cache, v_cache: (batch_cache, seqlen_cache, nheads_k, d), or with block_table pages (num_pages, page_size,
            nheads_k, d).
        k, v: (batch, seqlen_new, nheads_k, d): written into the caches behind cache_seqlens, and used. k is rotated
            first, at its positions in the cache, if rotary_cos and rotary_sin (positions, rotary_dim / 2) are given.
            So is q: at cache_seqlens and what follows if causal or in a window, else all of it at cache_seqlens.
        cache_seqlens: int or int32 (batch): the used rows before k and v. None: the whole caches.
        cache_batch_idx: (batch): the row of the caches that each sequence has.
        cache_leftpad: (batch): the first row of the caches that counts.
        block_table: int32 (batch, pages): the pages that each sequence has.
        num_splits: how many parts a sequence's keys are split in; 0 is the library's choice.

    Returns:
        out (batch, seqlen_q, nheads, d); with return_softmax_lse (out, lse), fp32 (batch, nheads, seqlen_q).
    """
    if torch.is_grad_enabled():  # a context would cost a tenth of the call where gradients are off already
        with torch.no_grad():
            return flash_attn_with_kvcache(
                q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad,
                block_table, softmax_scale, causal, window_size, softcap, rotary_interleaved, alibi_slopes, num_splits,
                return_softmax_lse)
    lengths = check(q, k, v, rotary_cos, cache_seqlens, cache_batch_idx, block_table, q.shape[0])
    append = None if k is None else Append(k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
                                           rotary_interleaved=rotary_interleaved)
    return attention(q, k_cache, v_cache, append=append, seqused_k=lengths, block_table=block_table,
                     cache_batch_idx=cache_batch_idx, first_k=in_32_bits(cache_leftpad), causal=causal,
                     window=window_size, scale=softmax_scale, softcap=softcap, alibi_slopes=alibi_slopes,
                     num_splits=num_splits, return_lse=return_softmax_lse)


def check(q: Tensor, k: Optional[Tensor], v: Optional[Tensor], rotary_cos: Optional[Tensor],
          cache_seqlens: Optional[Union[int, Tensor]], cache_batch_idx: Optional[Tensor], block_table: Optional[Tensor],
          batch: int) -> Any:
    """Refuses what does not go together. Returns the lengths, int32 (batch) or None."""
    if block_table is not None and cache_batch_idx is not None:
        raise ValueError("cache_batch_idx and block_table are both given, allowed is one of them")
    if k is None or v is None:
        if k is not v:
            raise ValueError(f"{'k' if k is None else 'v'} is None, allowed is None for both of k and v or for neither")
        if rotary_cos is not None:
            raise ValueError("rotary_cos is given without k and v, allowed is None: the cache holds rotated keys")
    elif cache_seqlens is None:
        raise ValueError("cache_seqlens is None, allowed with k and v is the length that they are appended to")
    if isinstance(cache_seqlens, int):
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    return in_32_bits(cache_seqlens)


def in_32_bits(lengths: Optional[Tensor]) -> Optional[Tensor]:
    return lengths if lengths is None or lengths.dtype is torch.int32 else lengths.to(torch.int32)
