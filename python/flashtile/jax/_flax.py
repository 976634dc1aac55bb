"""What Flax's attention layers take as attention_fn: nn.MultiHeadDotProductAttention(attention_fn=flax_attention)."""

from __future__ import annotations

from typing import Any, Optional

import jax
import jax.numpy as jnp

from .._library import InvalidArgument
from ._attention import attention

Array = jax.Array
# Arguments of flax's that say how it computes; promote_dtype is nnx' function for what `dtype` says.
_HOW = ("force_fp32_for_softmax", "broadcast_dropout", "precision", "promote_dtype")


def flax_attention(query: Array, key: Array, value: Array, bias: Optional[Array] = None, mask: Optional[Array] = None,
                   *, dropout_rng: Optional[Array] = None, dropout_rate: float = 0.0, deterministic: bool = False,
                   dtype: Any = None, is_causal: bool = False, **how: Any) -> Array:
    """Flax's dot_product_attention, on flashtile.

    Args:
        query, key, value: (.., seqlen, heads, ..), of which leading dimensions are batches.
        bias, mask: (.., heads, seqlen_q, seqlen_k), or 1 in place of a size; a mask's zeros hide.
        dropout_rng, dropout_rate, deterministic: dropout unless deterministic. Each sequence and head has a mask of its
            own, also where flax would give all the same (broadcast_dropout).
        dtype: to which query, key and value are converted; None: what they are.
        is_causal: query i sees keys 0..i.
        how: flax's other arguments that say how it computes, which change nothing here. Arguments that ask for
            attention's weights, or put functions in place of its products, are refused.
    """
    for name, value_of in how.items():
        if name not in _HOW and value_of is not None and value_of is not False:
            raise InvalidArgument(f"{name} is {value_of!r}, allowed is None: flashtile makes no attention weights")
    *lead, rows, heads, _ = query.shape
    q, k, v = (jnp.asarray(array, dtype).reshape(-1, *array.shape[-3:]) for array in (query, key, value))

    def four(array: Array) -> Array:
        if array.ndim > 4:
            array = jnp.broadcast_to(array, (*lead, *array.shape[-3:])).reshape(-1, *array.shape[-3:])
        return array

    if bias is not None:
        bias = four(bias if bias.dtype == q.dtype else bias.astype(jnp.float32))
    if mask is not None:
        mask = four(mask.astype(bool))
    dropout = 0.0 if deterministic else dropout_rate
    out = attention(q, k, v, bias=bias, mask=mask, causal=is_causal, align="top-left", dropout_p=dropout,
                    key=dropout_rng if dropout else None)
    return out.reshape(*lead, rows, heads, value.shape[-1])
