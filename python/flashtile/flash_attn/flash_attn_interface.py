"""flash_attn.flash_attn_interface's functions.

Shapes: q (batch, seqlen_q, nheads, d), k and v (batch, seqlen_k, nheads_k, d); varlen: q (total_q, nheads, d), k and v
(total_k, nheads_k, d) with int32 cu_seqlens (batch + 1); qkv has 3, kv has 2 before the heads. Causal masks are aligned
bottom-right. Errors are as those of `flashtile.attention`.

return_attn_probs gives (out, softmax_lse, S_dmask): softmax_lse fp32 (batch, nheads, seqlen_q) or (nheads, total_q),
the natural logarithm; S_dmask the normalised probabilities (batch, nheads, seqlen_q and seqlen_k rounded up to 128),
negative where dropout dropped them, and empty where dropout is off. It is for tests: quadratic memory, no gradient.
"""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .._attention import attention, draw
from .._run import innermost as maybe_contiguous
from ._autograd import (
    FlashAttnFunc,
    FlashAttnKVPackedFunc,
    FlashAttnQKVPackedFunc,
    FlashAttnVarlenFunc,
    FlashAttnVarlenKVPackedFunc,
    FlashAttnVarlenQKVPackedFunc,
)
from ._functional import (
    _flash_attn_backward,
    _flash_attn_forward,
    _flash_attn_varlen_backward,
    _flash_attn_varlen_forward,
    packed_arguments,
)
from ._kvcache import flash_attn_with_kvcache
from ._probabilities import signed_probabilities

__all__ = [
    "FlashAttnFunc",
    "FlashAttnKVPackedFunc",
    "FlashAttnQKVPackedFunc",
    "FlashAttnVarlenFunc",
    "FlashAttnVarlenKVPackedFunc",
    "FlashAttnVarlenQKVPackedFunc",
    "_flash_attn_backward",
    "_flash_attn_forward",
    "_flash_attn_varlen_backward",
    "_flash_attn_varlen_forward",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "maybe_contiguous",
]

# What flash-attn calls its operators by where torch.compile can see them.
_wrapped_flash_attn_forward, _wrapped_flash_attn_backward = _flash_attn_forward, _flash_attn_backward
_wrapped_flash_attn_varlen_forward = _flash_attn_varlen_forward
_wrapped_flash_attn_varlen_backward = _flash_attn_varlen_backward

Window = tuple[int, int]
Result = Union[Tensor, tuple[Tensor, Tensor, Tensor]]


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Result:
    """Attention of q on k and v: (batch, seqlen_q, nheads, d)."""
    return _attend(q, k, v, {}, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_func, of qkv (batch, seqlen, 3, nheads, d)."""
    q, k, v = qkv.unbind(-3)
    return _attend(q, k, v, {}, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_func, of kv (batch, seqlen, 2, nheads_k, d)."""
    k, v = kv.unbind(-3)
    return _attend(q, k, v, {}, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Optional[Tensor] = None,
) -> Result:
    """As flash_attn_func, of sequences that lie one after the other: q (total_q, nheads, d). With a block_table (batch,
    pages) k and v are pages (num_pages, page_size, nheads_k, d), which are read through a copy with dropout or
    gradients."""
    k, v, packed = packed_arguments(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table,
                                    dropout_p=dropout_p)
    return _attend(q, k, v, packed, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_varlen_func, of qkv (total, 3, nheads, d)."""
    q, k, v = qkv.unbind(-3)
    return _attend(q, k, v, _packed(cu_seqlens, cu_seqlens, max_seqlen, max_seqlen), dropout_p, softmax_scale,
                   causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Window = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Result:
    """As flash_attn_varlen_func, of kv (total_k, 2, nheads_k, d)."""
    k, v = kv.unbind(-3)
    return _attend(q, k, v, _packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), dropout_p,
                   softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def _packed(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int) -> dict:
    return {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q,
            "max_seqlen_k": max_seqlen_k}


def _attend(q: Tensor, k: Tensor, v: Tensor, packed: dict, dropout_p: float, softmax_scale: Optional[float],
            causal: bool, window_size: Window, softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
            return_attn_probs: bool) -> Result:
    if not return_attn_probs:
        return attention(q, k, v, causal=causal, window=window_size, scale=softmax_scale, softcap=softcap,
                         alibi_slopes=alibi_slopes, dropout_p=dropout_p, deterministic=deterministic, **packed)
    options = {"causal": causal, "window": window_size, "scale": softmax_scale, "softcap": softcap,
               "alibi_slopes": alibi_slopes, **packed}
    with torch.random.fork_rng([q.device.index] if q.is_cuda else []):
        rng = draw(q)  # what the call below draws
    out, lse = attention(q, k, v, dropout_p=dropout_p, deterministic=deterministic, return_lse=True, **options)
    if dropout_p == 0.0:
        return out, lse, q.new_empty(0)
    return out, lse, signed_probabilities(q, k, options, dropout_p, rng)
