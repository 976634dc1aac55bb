"""flash_attn.bert_padding: from padded batches to packed rows and back."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """The rows `indices` of x (n, ...)."""
    return x.index_select(0, indices)


def index_first_axis_residual(x: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """The rows `indices` of x (n, ...), and x."""
    return index_first_axis(x, indices), x


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """(first_axis_dim, ...): `values` as the rows `indices`, the others zero."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_copy(0, indices, values)


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
    return *_unpadded(hidden_states, kept, lengths), attention_mask.sum(-1, dtype=torch.int32)


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """As unpad_input, of rows of hidden_states (batch, seqlen, ...) that each hold several sequences one after the
    other.

    Args:
        attention_mask_in_length: (batch, seqlen), integers: in its first places the lengths of a row's sequences, zero
            in all others. [[2, 3, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]] are sequences of 2 and 3 with one row of padding,
            and one of 6.

    Returns:
        the rows (total, ...); their indices in the flattened batch (total); cu_seqlens int32 (sequences + 1); the
        longest length.
    """
    lengths = attention_mask_in_length.flatten()
    position = torch.arange(attention_mask_in_length.shape[-1], device=lengths.device)
    kept = position < attention_mask_in_length.sum(-1, keepdim=True)
    return _unpadded(hidden_states, kept, lengths[lengths != 0])


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The inverse of unpad_input: (batch, seqlen, ...), zero where no row was kept."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


def _unpadded(hidden_states: Tensor, kept: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    indices = kept.flatten().nonzero().flatten()
    cu_seqlens = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, cu_seqlens, int(lengths.max())
