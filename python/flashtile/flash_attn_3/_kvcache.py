"""FlashAttention-3's flash_attn_with_kvcache: flash-attn 2's function, with packed queries and new keys, and chunks."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .._append import Append
from .._attention import attention
from .._call import E4M3
from ..flash_attn import flash_attn_with_kvcache as with_kvcache
from ..flash_attn._kvcache import check, in_32_bits
from ._options import limit, refuse


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None,
    qv: Optional[Tensor] = None, rotary_cos: Optional[Tensor] = None, rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None, cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None, page_table: Optional[Tensor] = None, cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None, max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Optional[Tensor] = None, q_descale: Optional[Tensor] = None, k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    rotary_interleaved: bool = True, scheduler_metadata: Optional[Tensor] = None, num_splits: int = 0,
    pack_gqa: Optional[bool] = None, sm_margin: int = 0, return_softmax_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, ...]]:
    """As flash_attn.flash_attn_with_kvcache; page_table is its block_table. With cu_seqlens_q q is packed (total_q,
    nheads, d), with cu_seqlens_k_new k and v are; rotary_seqlens (batch) stands for cache_seqlens in positions. With
    return_softmax_lse it gives out, lse and two empty tensors, where FlashAttention-3 has those of its splits."""
    refuse(qv=qv)
    scaled = k_cache.dtype is E4M3 or not (q_descale is k_descale is v_descale is None)
    if (not scaled and cu_seqlens_q is None and cu_seqlens_k_new is None and rotary_seqlens is None and attention_chunk == 0
            and sm_margin == 0):
        result = with_kvcache(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx,
                              cache_leftpad, page_table, softmax_scale, causal, window_size, softcap,
                              rotary_interleaved, num_splits=num_splits, return_softmax_lse=return_softmax_lse)
    else:
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        lengths = check(q, k, v, rotary_cos, cache_seqlens, cache_batch_idx, page_table, batch)
        append = None if k is None else Append(
            k, v, cu_seqlens_k_new=cu_seqlens_k_new, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
            rotary_interleaved=rotary_interleaved, rotary_offsets=rotary_seqlens)
        with torch.no_grad():
            result = attention(q, k_cache, v_cache, append=append, seqused_k=lengths, block_table=page_table,
                               cache_batch_idx=cache_batch_idx, first_k=in_32_bits(cache_leftpad),
                               cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, causal=causal, window=window_size,
                               scale=softmax_scale, softcap=softcap, attention_chunk=attention_chunk,
                               num_splits=num_splits, sm_limit=limit(sm_margin, q), q_scale=q_descale,
                               k_scale=k_descale, v_scale=v_descale,
                               return_lse=return_softmax_lse)
    if not return_softmax_lse:
        return result
    return *result, torch.empty(0, device=q.device), torch.empty(0, device=q.device)
