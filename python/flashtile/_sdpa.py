"""PyTorch's scaled_dot_product_attention on flashtile: as a function, and as a context."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ._attention import TOP_LEFT, draw
from ._call import Tensors
from ._ops import attend

logger = logging.getLogger("flashtile")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, on flashtile.

    Args:
        query: (..., heads, seqlen_q, head_dim); key, value: (..., heads, seqlen_k, ..). Leading dimensions broadcast.
        attn_mask: broadcasts to (..., heads, seqlen_q, seqlen_k): bool, True keeps, or a float added to the scores,
            which may require a gradient.
        dropout_p: applied whatever the module's mode, as PyTorch does.
        is_causal: query i sees keys 0..i (top-left).
        scale: 1/sqrt(head_dim) if None.
        enable_gqa: key and value may have fewer heads than query.

    Returns:
        (..., heads, seqlen_q, value's head_dim). Rows that see no key are 0.

    Raises:
        as `flashtile.attention`; ValueError where PyTorch says that the arguments do not go together.
    """
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal are both given, allowed is one of them")
    lead = query.shape[:-3]
    q, k, v = query, key, value
    plain = query.dim() == key.dim() == value.dim() == 4 and key.shape[0] == value.shape[0] == query.shape[0]
    if not plain:
        lead = torch.broadcast_shapes(lead, key.shape[:-3], value.shape[:-3])
        q, k, v = (_four(tensor, lead) for tensor in (query, key, value))
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads != kv_heads and kv_heads != 1 and not enable_gqa:
        raise ValueError(f"key has {kv_heads} heads, allowed without enable_gqa is query's {heads}, or 1")
    given: Tensors = (q, k, v)
    if attn_mask is not None:
        if attn_mask.dim() > 3 and len(lead) > 1:
            attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, -4)
        boolean = attn_mask.dtype is torch.bool
        given = (q, k, v, None, None if boolean else attn_mask, attn_mask if boolean else None, None, None, None)
    out, _ = attend(given, (-1, -1, TOP_LEFT if is_causal else 0, 1, scale, 0.0, -1, -1, dropout_p,
                            torch.are_deterministic_algorithms_enabled(), False),
                    draw(q) if dropout_p != 0.0 else None, False, True)
    if plain:
        return out
    return out.unflatten(0, lead) if len(lead) > 1 else out.reshape(*query.shape[:-1], out.shape[-1])


def _four(tensor: Tensor, lead: torch.Size) -> Tensor:
    """(..., heads, seqlen, d) as (batch, heads, seqlen, d)."""
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    tensor = tensor.expand(*lead, *tensor.shape[-3:])
    return tensor.flatten(0, -4) if lead else tensor.unsqueeze(0)


@contextlib.contextmanager
def sdpa() -> Iterator[None]:
    """Within `with flashtile.sdpa():` F.scaled_dot_product_attention is flashtile's, in every thread of the process.

    A call that flashtile cannot do goes to PyTorch, and the logger "flashtile" says why, each reason once. Code that
    has taken the function out of torch.nn.functional by `from ... import` keeps PyTorch's.
    """
    before = F.scaled_dot_product_attention
    said: set[str] = set()

    @functools.wraps(scaled_dot_product_attention)
    def routed(*args: Any, **kwargs: Any) -> Tensor:
        try:
            return scaled_dot_product_attention(*args, **kwargs)
        except (TypeError, ValueError, NotImplementedError) as error:
            reason = str(error)
        if reason not in said:
            said.add(reason)
            logger.warning("scaled_dot_product_attention falls back to PyTorch: %s", reason)
        return before(*args, **kwargs)

    F.scaled_dot_product_attention = routed
    try:
        yield
    finally:
        F.scaled_dot_product_attention = before
