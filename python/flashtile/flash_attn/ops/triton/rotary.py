"""flash_attn.ops.triton.rotary: layers.rotary's apply_rotary_emb as flash-attn's kernel has it, without a gradient."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from ...layers.rotary import apply_rotary_emb


@torch.no_grad()
def apply_rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    seqlen_offsets: Union[int, Tensor] = 0,
    cu_seqlens: Optional[Tensor] = None,
    max_seqlen: Optional[int] = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> Tensor:
    """As layers.rotary.apply_rotary_emb; conjugate rotates the other way."""
    return apply_rotary_emb(x, cos, -sin if conjugate else sin, interleaved, inplace, seqlen_offsets, cu_seqlens,
                            max_seqlen)
