"""flashtile.quantize and flashtile.dequantize: e4m3 numbers and scales of a tensor, and the tensor of these."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._call import E4M3, explain
from ._one_call import Function, call
from ._options import CallOptions
from ._run import innermost, new_version
from ._scale_shape import check_block, scale_shape
from ._structs import QUANTIZE, QUANTIZE_NAMES, Part
from ._while_tracing import run_between_graphs

_COPIES = {at: innermost for at, name in enumerate(QUANTIZE_NAMES) if name not in ("quantized", "scale")}


def _parts(options: CallOptions, block: int, given: bool, begin: int, interleaved: bool,
           seed: Optional[int]) -> tuple[Part]:
    return (Part(QUANTIZE, QUANTIZE_NAMES,
                 {"scale_block": block, "scale_given": given, "rotary_begin": begin, "rotary_interleaved": interleaved,
                  "has_hadamard": seed is not None, "hadamard_seed": seed or 0}),)


_QUANTIZE = Function("quantize", _parts, QUANTIZE_NAMES, _COPIES)
_DEQUANTIZE = Function("dequantize", _parts, QUANTIZE_NAMES, {})


@run_between_graphs
@torch.no_grad()
def quantize(
    x: Tensor,
    *,
    block: int = 0,
    scale_heads: int = 0,
    hadamard: Optional[int] = None,
    scale: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    rotary_interleaved: bool = False,
    rotary_begin: int = 0,
    rotary_offsets: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor]:
    """A tensor as torch.float8_e4m3fn and fp32 scales, for attention's q_scale, k_scale and v_scale; no gradient.

    A scale is the largest magnitude of what it is for, over 448. Rotation, M and scales are described in flashtile's
    docs/semantics.md.

    Args:
        x: (batch, seqlen, heads, d), or with cu_seqlens packed (total, heads, d); fp32, fp16 or bf16.
        block: 64 or 128: a scale for so many rows of a head. 0: one for the whole tensor, which reads x twice.
        scale_heads: not 0, with block 0: a scale for each of so many groups of heads of each sequence: (batch,
            scale_heads), as FlashAttention-3 has it. q's groups are k's heads.
        hadamard: a seed: rows are multiplied by M, random signs times a Hadamard matrix, which spreads outliers. q and k
            with the same seed have the same scores as without.
        scale: given scales, in place of those that x would get.
        rotary_cos, rotary_sin: (positions, angles): rows are rotated first, that of a sequence's row n by position n, or
            rotary_offsets[b] + n, or by `positions`, one a row; the other names are append_kv's.

    Returns:
        (quantized, scale): scale is (), (batch, scale_heads), (batch, heads, ceil(seqlen / block)), or packed (heads,
        blocks), of which the last need not be used.
    """
    if not isinstance(x, Tensor):
        explain(x, "x")
    given = scale is not None
    if scale is None:
        packed = None if cu_seqlens is None else cu_seqlens.shape[0] - 1
        scale = x.new_empty(scale_shape(x, "x", packed, block, scale_heads), dtype=torch.float32)
    quantized = torch.empty(x.shape, dtype=E4M3, device=x.device)
    if cu_seqlens is not None:
        quantized.view(torch.uint8).zero_()  # rows of no sequence are not written
    call(_QUANTIZE, (x, quantized, scale, cu_seqlens, rotary_cos, rotary_sin, rotary_offsets, positions),
         numbers=(block, given, rotary_begin, bool(rotary_interleaved), hadamard))
    if not given:
        new_version(scale)
    return quantized, scale


@run_between_graphs
@torch.no_grad()
def dequantize(quantized: Tensor, scale: Tensor, *, block: int = 0, hadamard: Optional[int] = None,
               cu_seqlens: Optional[Tensor] = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """What quantize's results stand for, quantized * scale, times M's inverse with hadamard; no gradient. Rotation is
    not undone. The arguments are quantize's."""
    if not isinstance(quantized, Tensor):
        explain(quantized, "quantized")
    check_block(quantized, "quantized", cu_seqlens is not None, block)
    new = torch.empty if cu_seqlens is None else torch.zeros
    x = new(quantized.shape, dtype=dtype, device=quantized.device)
    call(_DEQUANTIZE, (x, innermost(quantized), scale, cu_seqlens, None, None, None, None),
         numbers=(block, True, 0, False, hadamard))
    return x
