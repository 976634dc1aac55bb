"""Rotary position embedding (RoFormer, arXiv 2104.09864) from tables of cos and sin, in PyTorch's operators.

x is (batch, seqlen, nheads, d), or (total, nheads, d) with cu_seqlens; cos and sin are (positions, rotary_dim / 2).
interleaved rotates dimensions 0 and 1, 2 and 3, .. (GPT-J), else the first half of rotary_dim with the second
(GPT-NeoX). seqlen_offsets, an int or (batch), is added to the positions. A tensor that is rotated in place may be a
view or a leaf that requires a gradient: autograd does not count the rotation as a change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .._probabilities import places

Tables = Sequence[tuple[Tensor, Tensor]]
Parts = Callable[[Tensor], Sequence[Tensor]]


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: Union[int, Tensor] = 0,
    cu_seqlens: Optional[Tensor] = None,
    max_seqlen: Optional[int] = None,
) -> Tensor:
    """x with the first rotary_dim of its head dimension rotated by its position; written into x if inplace. max_seqlen
    is ignored; flash-attn has it."""
    if inplace:
        return _in_place(x, _whole, [(cos, sin)], interleaved, seqlen_offsets, cu_seqlens)
    return torch.cat((rotated(x, cos, sin, interleaved, seqlen_offsets, cu_seqlens), x[..., 2 * cos.shape[-1]:]), -1)


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Optional[Tensor] = None,
    sin_k: Optional[Tensor] = None,
    interleaved: bool = False,
    seqlen_offsets: Union[int, Tensor] = 0,
    num_heads_q: Optional[int] = None,
) -> Tensor:
    """q and k of qkv rotated in place: (batch, seqlen, 3, nheads, d), or with num_heads_q (batch, seqlen, num_heads_q +
    2 nheads_k, d). cos_k and sin_k: k's own."""
    tables = [(cos, sin), (cos if cos_k is None else cos_k, sin if sin_k is None else sin_k)]
    if qkv.dim() == 5:
        return _in_place(qkv, lambda x: x.unbind(2)[:2], tables, interleaved, seqlen_offsets, None)
    if num_heads_q is None:
        raise ValueError(f"num_heads_q is None, allowed with a qkv of {tuple(qkv.shape)} is the number of q's heads")
    heads = (num_heads_q, (qkv.shape[2] - num_heads_q) // 2)
    if heads[1] < 0 or heads[0] + 2 * heads[1] != qkv.shape[2]:
        raise ValueError(f"num_heads_q is {num_heads_q}, allowed is one that leaves an even number of qkv's "
                         f"{qkv.shape[2]} heads to k and v")
    return _in_place(qkv, lambda x: x.split((*heads, heads[1]), 2)[:2], tables, interleaved, seqlen_offsets, None)


def apply_rotary_emb_kv_(
    kv: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    seqlen_offsets: Union[int, Tensor] = 0,
) -> Tensor:
    """k of kv (batch, seqlen, 2, nheads_k, d) rotated in place."""
    return _in_place(kv, lambda x: (x[:, :, 0],), [(cos, sin)], interleaved, seqlen_offsets, None)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, seqlen_offsets: Union[int, Tensor],
            cu_seqlens: Optional[Tensor]) -> Tensor:
    """The first rotary_dim of x's head dimension, rotated."""
    if cu_seqlens is None:
        position = torch.arange(x.shape[1], device=x.device)
        if isinstance(seqlen_offsets, Tensor):
            seqlen_offsets = seqlen_offsets[:, None]
    else:
        sequence, position = places(cu_seqlens, x.shape[0])
        if isinstance(seqlen_offsets, Tensor):
            seqlen_offsets = seqlen_offsets[sequence]
    position = position + seqlen_offsets
    c, s = cos[position].unsqueeze(-2).float(), sin[position].unsqueeze(-2).float()
    turned = x[..., : 2 * cos.shape[-1]].float()
    a, b = turned.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else turned.chunk(2, -1)
    pair = (a * c - b * s, a * s + b * c)
    return (torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)).to(x.dtype)


def _whole(x: Tensor) -> Sequence[Tensor]:
    return (x,)


def _in_place(x: Tensor, parts: Parts, tables: Tables, interleaved: bool, offsets: Union[int, Tensor],
              cu_seqlens: Optional[Tensor]) -> Tensor:
    """x, of which each of `parts` was rotated by its table."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Rotated.apply(x, parts, tables, interleaved, offsets, cu_seqlens)
    _rotate(x, parts, tables, interleaved, offsets, cu_seqlens)
    return x


def _rotate(x: Tensor, parts: Parts, tables: Tables, interleaved: bool, offsets: Union[int, Tensor],
            cu_seqlens: Optional[Tensor]) -> None:
    for part, (cos, sin) in zip(parts(x), tables):
        part[..., : 2 * cos.shape[-1]] = rotated(part, cos, sin, interleaved, offsets, cu_seqlens)


class _Rotated(torch.autograd.Function):
    """_rotate with its gradient, which is rotated the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: Parts, tables: Tables, *rest: Any) -> Tensor:
        _rotate(x, parts, tables, *rest)
        ctx.of = parts, [(cos, -sin) for cos, sin in tables], *rest
        return x

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Optional[Tensor], ...]:
        dx = dx.clone(memory_format=torch.contiguous_format)
        _rotate(dx, *ctx.of)
        return dx, None, None, None, None, None
