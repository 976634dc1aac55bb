"""flash-attn's S_dmask: the normalised probabilities. The library stores none, so they are computed by calls of it."""

from __future__ import annotations

import torch
from torch import Tensor

from .._attention import attention
from .._call import dropout_mask

_ROUNDED_TO = 128
_COLUMNS = 256  # the widest head dimension that every backend has


@torch.no_grad()
def signed_probabilities(q: Tensor, k: Tensor, options: dict, dropout_p: float, rng: Tensor) -> Tensor:
    """(batch, heads, seqlen_q and seqlen_k rounded up to 128) in q's dtype, negative where the dropout of `rng` dropped
    them. `options` are attention's."""
    probabilities = _probabilities(q, k, options)
    rows, columns = probabilities.shape[-2:]
    keep = torch.empty(probabilities.shape, dtype=torch.bool, device=q.device)
    dropout_mask(dropout_p, rng, keep)
    signed = torch.where(keep, probabilities, -probabilities)
    return torch.nn.functional.pad(signed, (0, -columns % _ROUNDED_TO, 0, -rows % _ROUNDED_TO))


def _probabilities(q: Tensor, k: Tensor, options: dict) -> Tensor:
    """(batch, heads, seqlen_q, seqlen_k): the outputs of attention where v is the identity matrix, some columns at a
    time."""
    kv_heads, device = k.shape[-2], q.device
    cu_seqlens_k = options.get("cu_seqlens_k")
    if cu_seqlens_k is None:
        position = torch.arange(k.shape[1], device=device)
        columns, shape = k.shape[1], (*k.shape[:3],)
    else:
        _, position = places(cu_seqlens_k, k.shape[0])
        columns, shape = options["max_seqlen_k"], (*k.shape[:2],)
    parts = []
    for start in range(0, columns, _COLUMNS):
        identity = position[:, None] == torch.arange(start, min(start + _COLUMNS, columns), device=device)
        v = identity.to(q.dtype).unsqueeze(1).expand(*shape, -1)
        parts.append(attention(q, k, v, **options))
    rows = torch.cat(parts, -1)
    if cu_seqlens_k is None:
        return rows.transpose(1, 2)
    sequence, position = places(options["cu_seqlens_q"], q.shape[0])
    batch = cu_seqlens_k.numel() - 1
    inside = sequence < batch
    result = rows.new_zeros(batch, options["max_seqlen_q"], q.shape[1], columns)
    result[sequence[inside], position[inside]] = rows[inside]
    return result.transpose(1, 2)


def places(cu_seqlens: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The sequence of each packed row, and the row's position in it. Rows of no sequence have the number of
    sequences."""
    row = torch.arange(total, device=cu_seqlens.device)
    sequence = torch.searchsorted(cu_seqlens[1:].to(torch.int64), row, right=True)
    return sequence, row - cu_seqlens.to(torch.int64)[sequence]
