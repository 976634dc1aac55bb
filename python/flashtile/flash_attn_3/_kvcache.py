"""FlashAttention-3's flash_attn_with_kvcache: flash-attn 2's function with FlashAttention-3's argument names."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from ..flash_attn import flash_attn_with_kvcache as with_kvcache
from ._options import refuse


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
    """As flash_attn.flash_attn_with_kvcache; page_table is its block_table. With return_softmax_lse it gives out, lse
    and two empty tensors, where FlashAttention-3 has those of its splits."""
    refuse(attention_chunk, qv=qv, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new,
           rotary_seqlens=rotary_seqlens, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
           scheduler_metadata=scheduler_metadata)
    result = with_kvcache(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx,
                          cache_leftpad, page_table, softmax_scale, causal, window_size, softcap, rotary_interleaved,
                          return_softmax_lse=return_softmax_lse)
    if not return_softmax_lse:
        return result
    return *result, torch.empty(0, device=q.device), torch.empty(0, device=q.device)
