"""Lays out the results of scaled_dot_product_attention in memory as PyTorch does, so that `.view` of a result works
exactly where it works with PyTorch's.

The layout depends on the backend that PyTorch would choose. Its flash attention gives out the strides of q, the
memory-efficient backend stores (batch, seqlen, heads, head_dim), and the math backend's out is contiguous. That is so
in PyTorch 2.5 and 2.13; in 2.4 flash attention on the CPU stores as the memory-efficient backend does. Here q, k and v
are (batch, heads, seqlen, head_dim), as PyTorch has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from ._options import CallOptions

_FLASH, _EFFICIENT, _MATH = range(3)
_FLASH_ON_CPU = _FLASH if torch.__version__ >= "2.5" else _EFFICIENT


def _backend(given: Sequence[Any], options: CallOptions) -> int:
    q, _, v, _, bias, mask = given[:6]
    alike = q.shape[-1] == v.shape[-1]
    if q.is_cuda:
        return _FLASH if alike and bias is mask is None and q.dtype is not torch.float32 else _EFFICIENT
    return _FLASH_ON_CPU if alike and options.dropout == 0.0 else _MATH


def _rows_first(like: Tensor, head_dim: int) -> Tensor:
    batch, heads, seqlen, _ = like.shape
    return like.new_empty((batch, seqlen, heads, head_dim)).transpose(1, 2)


def sdpa_results(given: Sequence[Any], options: CallOptions, want_lse: bool) -> tuple[Tensor, Optional[Tensor]]:
    """Empty out and lse."""
    q, _, v = given[:3]
    backend = _backend(given, options)
    if backend == _FLASH:
        out = torch.empty_like(q)
    elif backend == _EFFICIENT:
        out = _rows_first(q, v.shape[-1])
    else:
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32) if want_lse else None


def sdpa_gradients(given: Sequence[Any], options: CallOptions,
                   want: tuple[bool, bool]) -> tuple[Optional[Tensor], ...]:
    """Empty dq, dk, dv and dbias, where want[0] says that it is wanted, and no dsinks. PyTorch's flash attention stores
    (batch, seqlen, heads, head_dim) on the CPU, and on CUDA gives them the strides of q, k and v."""
    q, k, v, _, bias = given[:5]
    backend = _backend(given, options)
    made: list[Optional[Tensor]]
    if backend == _FLASH and q.is_cuda:
        made = [torch.empty_like(t) for t in (q, k, v)]
    elif backend == _MATH:
        made = [t.new_empty(t.shape) for t in (q, k, v)]
    else:
        made = [_rows_first(t, t.shape[-1]) for t in (q, k, v)]
    dbias = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device) if want[0] else None
    return (*made, dbias, None)


def as_pytorch_traced(given: Sequence[Any], options: CallOptions, out: Tensor) -> Tensor:
    """An operator's out, which is stored as (batch, seqlen, heads, head_dim), in the layout that PyTorch would give it.
    For tracers: an operator's result has one layout whatever q's is. q is either contiguous or stored as (batch,
    seqlen, heads, head_dim); other strides do not occur in practice."""
    backend = _backend(given, options)
    return out.contiguous() if backend == _MATH or backend == _FLASH and given[0].is_contiguous() else out
