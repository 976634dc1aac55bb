"""Which calls of PyTorch's scaled_dot_product_attention flashtile cannot do, and why.

A plain call needs none of this, since the library refuses what it cannot do. But a compiler's tensors have shapes and
no values, and tensor subclasses must not be touched. For those the library's rules stand here a second time; a test
compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from ._call import DEVICES
from ._causal_bias import fits, is_causal_bias
from ._forward_mode import forward_mode
from ._while_tracing import run_while_tracing

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MOST_DIMS = 512  # of a head
_TYPES = (Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)  # other subclasses define operators of their own


def why_not(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool,
            scale: Optional[float], enable_gqa: bool) -> Optional[str]:
    """The reason, or None where flashtile can do the call. Reads nothing but types and shapes."""
    given = (("query", query), ("key", key), ("value", value))
    for name, tensor in given:
        reason = _tensor(name, tensor)
        if reason is not None:
            return reason
    for name, tensor in given:
        if tensor.dim() < 2:
            return f"{name} has fewer than 2 dimensions"
        if not 1 <= tensor.shape[-1] <= _MOST_DIMS:
            return f"{name} has a head_dim outside 1 to {_MOST_DIMS}"
    if query.device != key.device or query.device != value.device:
        return "query, key and value lie on several devices"
    reason = _dtypes(query, key, value) or _shapes(query, key, value, enable_gqa)
    if reason is None and attn_mask is not None:
        reason = "attn_mask and is_causal are both given" if is_causal else _mask(attn_mask, query, key, value)
    if reason is not None:
        return reason
    if not 0.0 <= dropout_p < 1.0:
        return "dropout_p is outside 0 to 1, 1 excluded"
    if isinstance(scale, float) and not math.isfinite(scale):
        return "scale is not finite"
    if forward_mode((query, key, value, attn_mask)):
        return "flashtile has no forward-mode derivatives"
    if _exported_to_onnx():
        return "ONNX has no operator of flashtile's"
    return None


def _tensor(name: str, tensor: Any) -> Optional[str]:
    if not isinstance(tensor, Tensor):
        return f"{name} is no torch.Tensor"
    if type(tensor) not in _TYPES:
        return f"{name} is of a tensor subclass"
    if tensor.is_nested:
        return f"{name} is a nested tensor"
    if tensor.layout is not torch.strided:
        return f"{name} is not strided"
    if tensor.device.type not in DEVICES and not tensor.is_meta:
        return f"{name} is on a device that flashtile does not have"
    return None


def _computed_in(query: Tensor) -> torch.dtype:
    device = query.device.type
    autocast = not query.is_meta and torch.is_autocast_enabled(device) and query.dtype is not torch.float64
    return torch.get_autocast_dtype(device) if autocast else query.dtype


def _dtypes(query: Tensor, key: Tensor, value: Tensor) -> Optional[str]:
    dtype = _computed_in(query)
    if dtype not in _DTYPES:
        return f"{dtype} is no dtype of flashtile's"
    if dtype != _computed_in(key) or dtype != _computed_in(value):
        return "query, key and value differ in dtype"
    return None


def _shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> Optional[str]:
    if query.shape[-1] != key.shape[-1]:
        return "query and key differ in head_dim"
    if key.shape[-2] != value.shape[-2]:
        return "key and value differ in seqlen"
    heads, kv_heads, v_heads = _heads(query), _heads(key), _heads(value)
    if kv_heads != v_heads:
        return "key and value differ in heads"
    if heads != kv_heads and kv_heads != 1 and not enable_gqa:
        return "query and key differ in heads"
    if kv_heads == 0 or heads % kv_heads != 0:
        return "query's heads are no multiple of key's"
    if not _broadcasts(key.shape[:-3], query.shape[:-3], both_ways=True) or not _broadcasts(
            value.shape[:-3], query.shape[:-3], both_ways=True) or not _broadcasts(
            value.shape[:-3], key.shape[:-3], both_ways=True):
        return "the leading dimensions do not broadcast"
    return None


def _heads(tensor: Tensor) -> int:
    return tensor.shape[-3] if tensor.dim() > 2 else 1


def _broadcasts(sizes: Sequence[int], to: Sequence[int], both_ways: bool = False) -> bool:
    return all(a == b or a == 1 or (both_ways and b == 1) for a, b in zip(reversed(sizes), reversed(to)))


def _mask(mask: Any, query: Tensor, key: Tensor, value: Tensor) -> Optional[str]:
    if is_causal_bias(mask):
        return None if fits(mask, query, key) else "attn_mask is of other lengths"
    reason = _tensor("attn_mask", mask)
    if reason is not None:
        return reason
    if mask.dtype not in (torch.bool, torch.float32, _computed_in(query)):
        return "attn_mask is of another dtype"
    if mask.device != query.device:
        return "attn_mask lies on another device"
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    scores = (*lead, _heads(query), query.shape[-2], key.shape[-2])
    if mask.dim() > max(len(scores), 4) or not _broadcasts(mask.shape, (1, *scores) if not lead else scores):
        return "attn_mask does not broadcast to the scores"
    return None


@run_while_tracing
def _exported_to_onnx() -> bool:
    return torch.onnx.is_in_onnx_export()
