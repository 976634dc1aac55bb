"""The masks of torch.nn.attention.bias: causal_upper_left and causal_lower_right. They are tensor subclasses whose
memory holds no mask. Importing that module loads PyTorch's compiler, so it is used only where other code has imported
it."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from ._attention import BOTTOM_RIGHT, TOP_LEFT


def is_causal_bias(mask: Any) -> bool:
    if mask is None or type(mask) is Tensor:
        return False
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(mask, module.CausalBias)


def fits(bias: Any, query: Tensor, key: Tensor) -> bool:
    """Whether the mask is for as many queries and keys as there are. PyTorch compares the lengths of lower-right masks
    only."""
    return _upper_left(bias) or (bias.seq_len_q, bias.seq_len_kv) == (query.shape[-2], key.shape[-2])


def diagonal(bias: Any, query: Tensor, key: Tensor) -> int:
    """The mask as a causal mode (flashtile_causal)."""
    if not fits(bias, query, key):
        raise ValueError(f"attn_mask is of {bias.seq_len_q} queries and {bias.seq_len_kv} keys, allowed are as many as "
                         f"there are, {query.shape[-2]} and {key.shape[-2]}")
    return TOP_LEFT if _upper_left(bias) else BOTTOM_RIGHT


def _upper_left(bias: Any) -> bool:
    return bias.seq_len_q == bias.seq_len_kv or bias.variant == type(bias.variant).UPPER_LEFT
