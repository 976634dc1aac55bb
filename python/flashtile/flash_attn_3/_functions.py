"""FlashAttention-3's functions without a cache. Shapes are flash_attn.flash_attn_interface's; return_attn_probs gives
(out, softmax_lse)."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .._attention import attention
from ._options import limit, refuse, splits

Window = tuple[int, int]
Result = Union[Tensor, tuple[Tensor, Tensor]]


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: Optional[float] = None, causal: bool = False,
    qv: Optional[Tensor] = None, q_descale: Optional[Tensor] = None, k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None, window_size: Window = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: Optional[bool] = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of q on k and v: (batch, seqlen_q, nheads, d)."""
    refuse(qv=qv)
    return attention(q, k, v, causal=causal, window=window_size, scale=softmax_scale, softcap=softcap,
                     attention_chunk=attention_chunk, deterministic=deterministic,
                     num_splits=splits(num_splits, q), sm_limit=limit(sm_margin, q, k, v),
                     q_scale=q_descale, k_scale=k_descale, v_scale=v_descale, return_lse=return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    seqused_q: Optional[Tensor] = None, seqused_k: Optional[Tensor] = None, softmax_scale: Optional[float] = None,
    causal: bool = False, qv: Optional[Tensor] = None, q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None, v_descale: Optional[Tensor] = None, window_size: Window = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1, pack_gqa: Optional[bool] = None,
    deterministic: bool = False, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_func, of sequences that lie one after the other: q (total_q, nheads, d)."""
    refuse(qv=qv)
    return attention(q, k, v, causal=causal, window=window_size, scale=softmax_scale, softcap=softcap,
                     deterministic=deterministic, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, seqused_k=seqused_k,
                     seqused_q=seqused_q, attention_chunk=attention_chunk,
                     num_splits=splits(num_splits, q, max_seqlen_q), sm_limit=limit(sm_margin, q, k, v),
                     q_scale=q_descale, k_scale=k_descale, v_scale=v_descale, return_lse=return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Tensor, softmax_scale: Optional[float] = None, causal: bool = False, q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None, v_descale: Optional[Tensor] = None, window_size: Window = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False, num_heads_q: Optional[int] = None,
    sm_margin: int = 0, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_func, of qkv (batch, seqlen, 3, nheads, d), or with num_heads_q (batch, seqlen, num_heads_q +
    2 nheads_k, d)."""
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(-3)
    elif num_heads_q is None:
        raise ValueError(f"num_heads_q is None, allowed with a qkv of {tuple(qkv.shape)} is the number of q's heads")
    else:
        heads = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split((num_heads_q, heads, heads), -2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size,
                           attention_chunk, softcap, deterministic=deterministic, sm_margin=sm_margin,
                           return_attn_probs=return_attn_probs)


def flash_attn_combine(out_partial: Tensor, lse_partial: Tensor, out: Optional[Tensor] = None,
                       out_dtype: Optional[torch.dtype] = None) -> tuple[Tensor, Tensor]:
    """One result (out, lse) of several over parts of the keys: out_partial (parts, batch, seqlen, nheads, d),
    lse_partial (parts, batch, seqlen, nheads). Parts that saw no key, with lse -inf, count for nothing."""
    lse = lse_partial.logsumexp(0)
    seen = lse_partial > -torch.inf
    weight = torch.where(seen, (lse_partial - lse).exp(), 0.0)
    combined = torch.where(seen[..., None], out_partial * weight[..., None], 0.0).sum(0)
    dtype = out_dtype or (out_partial if out is None else out).dtype
    return (combined.to(dtype) if out is None else out.copy_(combined)), lse
