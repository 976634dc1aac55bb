"""jax.nn.dot_product_attention on flashtile: its signature, shapes and rules.

Where it differs: a query that sees no key gets 0, for which XLA gives the mean of the values; and with return_residual
-inf, for which XLA gives a large negative number."""

from __future__ import annotations

from typing import Any, Optional, Union

import jax
import jax.numpy as jnp

from .._library import InvalidArgument
from ._attention import attention

Array = jax.Array


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Optional[Array] = None,
    mask: Optional[Array] = None,
    *,
    scale: Optional[float] = None,
    is_causal: bool = False,
    query_seq_lengths: Optional[Array] = None,
    key_value_seq_lengths: Optional[Array] = None,
    local_window_size: Union[None, int, tuple[int, int]] = None,
    implementation: Optional[str] = None,
    return_residual: bool = False,
) -> Any:
    """jax.nn.dot_product_attention, on flashtile.

    Args:
        query: (batch, seqlen_q, heads, head_dim), or without batch; key, value: likewise, where heads is a multiple of
            their heads, and value may have another width. float32, float16 or bfloat16.
        bias: floats added to the scores; mask: bool, True keeps. 4 dimensions that broadcast to (batch, heads,
            seqlen_q, seqlen_k), or without batch.
        scale: 1/sqrt(head_dim) if None.
        is_causal: query i sees keys 0..i (top-left).
        query_seq_lengths, key_value_seq_lengths: int32 (batch). Rows of the result past a query's length are 0.
        local_window_size: (left, right): query i sees the keys from i - left to i + right; a number is both.
        implementation: None, or "flashtile". With "xla" or "cudnn" JAX's function is called instead.
        return_residual: return lse too, (batch, seqlen_q, heads), in key's dtype, without a gradient, as JAX does.

    Returns:
        (batch, seqlen_q, heads, value's width), with return_residual a tuple of it and lse.

    Raises:
        as `flashtile.jax.attention`, whose names for query, key and value are q, k and v.
    """
    if implementation not in (None, "flashtile"):
        return jax.nn.dot_product_attention(
            query, key, value, bias, mask, scale=scale, is_causal=is_causal, query_seq_lengths=query_seq_lengths,
            key_value_seq_lengths=key_value_seq_lengths, local_window_size=local_window_size,
            implementation=implementation, return_residual=return_residual)  # type: ignore[call-overload]
    for name, array in (("query", query), ("key", key), ("value", value)):
        if jnp.ndim(array) not in (3, 4) or jnp.ndim(array) != jnp.ndim(query):
            raise InvalidArgument(f"{name} has {jnp.ndim(array)} dimensions, allowed are 4, or 3 of all three")
    batched = jnp.ndim(query) == 4
    q, k, v = (jnp.asarray(array) if batched else jnp.asarray(array)[None] for array in (query, key, value))
    window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
    if bias is not None and bias.dtype not in (jnp.float32, q.dtype):
        bias = bias.astype(jnp.float32)
    out, lse = attention(q, k, v, bias=bias, mask=mask, scale=scale, causal=is_causal, align="top-left",
                         window=(-1, -1) if window is None else window, seqused_k=key_value_seq_lengths,
                         return_lse=True)
    residual = jax.lax.stop_gradient(lse.transpose(0, 2, 1))
    if query_seq_lengths is not None:
        lengths = jnp.asarray(query_seq_lengths)
        if lengths.shape != q.shape[:1] or lengths.dtype != jnp.int32:
            raise InvalidArgument(f"query_seq_lengths is {lengths.dtype} {lengths.shape}, allowed is int32 "
                                  f"{q.shape[:1]}")
        used = (jnp.arange(q.shape[1]) < lengths[:, None])[..., None]
        out, residual = jnp.where(used[..., None], out, 0), jnp.where(used, residual, -jnp.inf)
    made = (out, residual.astype(k.dtype)) if batched else (out[0], residual[0].astype(k.dtype))
    return made if return_residual else made[0]
