"""PyTorch's scaled_dot_product_attention on flashtile, as a function."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._attention import BOTTOM_RIGHT, TOP_LEFT, draw
from ._call import INPUT_NAMES, Tensors, explain
from ._causal_bias import diagonal, is_causal_bias
from ._ops import attend, deterministic
from ._options import CallOptions


_REST = (None,) * (len(INPUT_NAMES) - 6)  # the inputs after a mask


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
            which may require a gradient; or one of torch.nn.attention.bias.
        dropout_p: applied whatever the module's mode, as PyTorch does.
        is_causal: query i sees keys 0..i (top-left).
        scale: 1/sqrt(head_dim) if None.
        enable_gqa: key and value may have fewer heads than query.

    Returns:
        (..., heads, seqlen_q, value's head_dim), laid out as PyTorch does. Rows that see no key are 0.

    Raises:
        as `flashtile.attention`; ValueError where PyTorch says that the arguments do not go together.
    """
    return attend_as_pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attend_as_pytorch(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float,
                      is_causal: bool, scale: Optional[float], enable_gqa: bool,
                      eager: Optional[bool] = None) -> Tensor:
    """As scaled_dot_product_attention. eager: what _ops.eager has returned for the tensors, where it was called."""
    causal = TOP_LEFT if is_causal else 0
    if attn_mask is not None:
        if is_causal:
            raise ValueError("attn_mask and is_causal are both given, allowed is one of them")
        if is_causal_bias(attn_mask):
            causal, attn_mask = diagonal(attn_mask, query, key), None
    try:
        shape, of_k, of_v = query.shape, key.shape, value.shape
    except AttributeError:
        explain(*next((given, name) for given, name in ((query, "query"), (key, "key"), (value, "value"))
                      if not isinstance(given, Tensor)))
    plain = len(shape) == len(of_k) == len(of_v) == 4 and of_k[0] == of_v[0] == shape[0]
    broadcast = not plain
    q, k, v = query, key, value
    lead: Any = ()
    if not plain:
        if min(len(shape), len(of_k), len(of_v)) < 2:
            raise ValueError(f"query, key and value are {tuple(shape)}, {tuple(of_k)} and {tuple(of_v)}, allowed are "
                             "2 or more dimensions")
        lead = torch.broadcast_shapes(shape[:-3], of_k[:-3], of_v[:-3])
        q, k, v = (_four(tensor, lead) for tensor in (query, key, value))
        shape, of_k = q.shape, k.shape
    heads, kv_heads = shape[1], of_k[1]
    if heads != kv_heads and not enable_gqa:
        if kv_heads != 1:
            raise ValueError(f"key has {kv_heads} heads, allowed without enable_gqa is query's {heads}, or 1")
        broadcast = True
    given: Tensors = (q, k, v)
    if attn_mask is not None:
        if attn_mask.dim() > 3 and len(lead) > 1:
            attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, -4)
        boolean = attn_mask.dtype is torch.bool
        given = (q, k, v, None, None if boolean else attn_mask, attn_mask if boolean else None, *_REST)
    recipe = (_options, causal, scale, dropout_p, deterministic())
    out, _ = attend(given, recipe, draw(q) if dropout_p != 0.0 else None, False, True, eager)
    if not broadcast and (attn_mask is None or not attn_mask.requires_grad or out.is_cuda):
        return out
    # PyTorch uses its math backend for these, whose result is contiguous.
    sizes = out.shape if plain else (*lead, *out.shape[1:])
    return out.contiguous().view(sizes[len(sizes) - max(query.dim(), key.dim(), value.dim()):])


def _options(causal: int, scale: Optional[float], dropout_p: float, deterministic: bool) -> CallOptions:
    return CallOptions(causal=causal, alignment=0 if causal == BOTTOM_RIGHT else 1, scale=scale, dropout=dropout_p,
                       deterministic=deterministic)


def _four(tensor: Tensor, lead: Any) -> Tensor:
    """(..., heads, seqlen, d) as (batch, heads, seqlen, d)."""
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    tensor = tensor.expand(*lead, *tensor.shape[-3:])
    return tensor.flatten(0, -4) if lead else tensor.unsqueeze(0)
