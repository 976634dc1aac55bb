"""flash_attn.bert_padding: from padded batches to packed rows and back."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """The rows `indices` of x (n, ...)."""
    return x.index_select(0, indices)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Optional[Tensor] = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows of hidden_states (batch, seqlen, ...) that a mask keeps, one after the other.

    Args:
        attention_mask: (batch, seqlen), bool or integers: 1 where a row counts.
        unused_mask: (batch, seqlen): 1 where a row is kept though it does not count.

    Returns:
        the rows (total, ...); their indices in the flattened batch (total); cu_seqlens int32 (batch + 1); the longest
        length; int32 (batch) how many rows of each sequence count.
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    cu_seqlens = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, cu_seqlens, int(lengths.max()), attention_mask.sum(-1, dtype=torch.int32)


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The inverse of unpad_input: (batch, seqlen, ...), zero where no row was kept."""
    rows = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return rows.index_copy(0, indices, hidden_states).unflatten(0, (batch, seqlen))
