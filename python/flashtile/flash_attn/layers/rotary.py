"""flash_attn.layers.rotary: rotary position embedding (RoFormer, arXiv 2104.09864), in PyTorch's own operators."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .._probabilities import places


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
    """x with the first rotary_dim of its head dimension rotated by its position.

    Args:
        x: (batch, seqlen, nheads, d), or (total, nheads, d) with cu_seqlens.
        cos, sin: (positions, rotary_dim / 2).
        interleaved: rotate dimensions 0 and 1, 2 and 3, .. (GPT-J); else the first half with the second (GPT-NeoX).
        inplace: write into x.
        seqlen_offsets: int or (batch): added to the positions.
        max_seqlen: not needed; taken as flash-attn does.
    """
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
    turned, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    a, b = turned.float().unflatten(-1, (-1, 2)).unbind(-1) if interleaved else turned.float().chunk(2, -1)
    pair = (a * c - b * s, a * s + b * c)
    turned = (torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)).to(x.dtype)
    if inplace:
        x[..., : turned.shape[-1]] = turned
        return x
    return torch.cat((turned, rest), -1)
