"""flash_attn.layers.rotary: the functions, and the module that computes and keeps their tables of cos and sin."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from ._rotation import apply_rotary_emb, apply_rotary_emb_func, apply_rotary_emb_kv_, apply_rotary_emb_qkv_

__all__ = ["RotaryEmbedding", "apply_rotary_emb", "apply_rotary_emb_func", "apply_rotary_emb_kv_",
           "apply_rotary_emb_qkv_"]


class RotaryEmbedding(torch.nn.Module):
    """Rotary position embedding of q, k and v, written in place.

    Args:
        dim: how many of the head's dimensions are rotated.
        base: position n turns pair i by n / base^(2 i / dim).
        interleaved: as in apply_rotary_emb.
        scale_base: XPos (arXiv 2212.10554): q also grows and k shrinks with the position, by powers of 1 / scale_base.
        pos_idx_in_fp32: ignored; older versions of flash-attn have it. Positions are always fp32.
    """

    inv_freq: Tensor
    scale: Optional[Tensor]

    def __init__(self, dim: int, base: float = 10000.0, interleaved: bool = False, scale_base: Optional[float] = None,
                 device: Optional[torch.device] = None, *, pos_idx_in_fp32: bool = True) -> None:
        super().__init__()
        self.dim, self.base, self.interleaved, self.scale_base = dim, float(base), interleaved, scale_base
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        scale = None if scale_base is None else self._compute_scale(device)
        self.register_buffer("scale", scale, persistent=False)
        # Classes derived from this one read and write these.
        self._seq_len_cached = 0
        self._cos_cached: Optional[Tensor] = None
        self._sin_cached: Optional[Tensor] = None
        self._cos_k_cached: Optional[Tensor] = None
        self._sin_k_cached: Optional[Tensor] = None

    def forward(self, qkv: Tensor, kv: Optional[Tensor] = None, seqlen_offset: Union[int, Tensor] = 0,
                max_seqlen: Optional[int] = None,
                num_heads_q: Optional[int] = None) -> Union[Tensor, tuple[Tensor, Tensor]]:
        """qkv (batch, seqlen, 3, nheads, d), or with num_heads_q (batch, seqlen, num_heads_q + 2 nheads_k, d); with kv
        (batch, seqlen, 2, nheads_k, d) it is q (batch, seqlen, nheads, d), and both are returned. A seqlen_offset that
        is a tensor (batch) needs max_seqlen, the most positions that there are."""
        if max_seqlen is not None:
            positions = max_seqlen
        elif isinstance(seqlen_offset, int):
            positions = qkv.shape[1] + seqlen_offset
        elif self._cos_cached is None:
            raise ValueError("max_seqlen is None, allowed with a tensor as seqlen_offset is the most positions")
        else:
            positions = self._seq_len_cached
        self._update_cos_sin_cache(positions, device=qkv.device, dtype=qkv.dtype)
        cos, sin = self._cos_cached, self._sin_cached
        cos_k, sin_k = (cos, sin) if self.scale is None else (self._cos_k_cached, self._sin_k_cached)
        if kv is None:
            return apply_rotary_emb_qkv_(qkv, cos, sin, cos_k, sin_k, self.interleaved, seqlen_offset, num_heads_q)
        return (apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset),
                apply_rotary_emb_kv_(kv, cos_k, sin_k, self.interleaved, seqlen_offset))

    def _compute_inv_freq(self, device: Optional[torch.device] = None) -> Tensor:
        return self.base ** -(torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim)

    def _compute_scale(self, device: Optional[torch.device] = None) -> Tensor:
        return (torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim + 0.4) / 1.4

    def _update_cos_sin_cache(self, seqlen: int, device: Optional[torch.device] = None,
                              dtype: Optional[torch.dtype] = None) -> None:
        """Makes the tables where there are none for this length, device and dtype."""
        kept = self._cos_cached
        if (kept is not None and seqlen <= self._seq_len_cached and kept.device == device and kept.dtype == dtype
                and not (self.training and kept.is_inference())):
            return
        self._seq_len_cached = seqlen
        position = torch.arange(seqlen, device=device, dtype=torch.float32)
        # A model that was cast to 16 bits has 16-bit buffers, but large angles need all of fp32's precision.
        exact = self.inv_freq.dtype is torch.float32
        angle = position[:, None] * (self.inv_freq.to(device) if exact else self._compute_inv_freq(device))
        cos, sin = angle.cos(), angle.sin()
        if self.scale is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        scale = self._compute_scale(device) ** ((position - seqlen // 2) / self.scale_base)[:, None]
        self._cos_cached, self._sin_cached = (cos * scale).to(dtype), (sin * scale).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / scale).to(dtype), (sin / scale).to(dtype)
