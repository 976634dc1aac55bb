"""flashtile behind PyTorch's own dispatcher: torch.nn.attention's registry of flash implementations (PyTorch 2.11 on).

    flashtile.register_flash_attention_impl()
    torch.nn.attention.activate_flash_attention_impl("flashtile")       # the user's step, never ours

Then the flash backend of F.scaled_dot_product_attention and torch.nn.attention.varlen run flashtile, on the CPU and on
CUDA, in eager and compiled code. What flashtile cannot do, PyTorch's own flash attention does. The dispatcher has
applied autocast, autograd and views before it calls these functions. Results are laid out as PyTorch's operators lay
out theirs, since compiled code relies on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from ._attention import BOTTOM_RIGHT, TOP_LEFT, attention, draw
from ._ops import deterministic
from ._options import CallOptions, Recipe
from ._run import calls_of
from ._structs import ONE_FOR_ALL


def register_flash_attention_impl() -> None:
    """Makes "flashtile" known to torch.nn.attention.activate_flash_attention_impl. Activates nothing."""
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        raise NotImplementedError(f"PyTorch {torch.__version__} has no such registry: use flashtile.sdpa()")
    register("flashtile", register_fn=_Active)


class _Active:
    """The handle that PyTorch keeps while flashtile is active."""

    def __init__(self) -> None:
        self.library: Optional[torch.library.Library] = torch.library.Library("aten", "IMPL")
        for device, implementations in _IMPLEMENTATIONS.items():
            for name, function in implementations.items():
                kernel = _or_pytorch(function, _pytorch_kernel(name, device))
                self.library.impl(name, kernel, device, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        if self.library is not None:
            self.library._destroy()
        self.library = None


def _pytorch_kernel(name: str, device: str) -> Optional[Callable]:
    """PyTorch's kernel of an operator, which ours replaces; None in a PyTorch without this device."""
    get_kernel = getattr(torch.library, "get_kernel", None)
    try:
        return None if get_kernel is None else get_kernel("aten::" + name, device).call_boxed
    except RuntimeError:
        return None


def _or_pytorch(ours: Callable, pytorchs: Optional[Callable]) -> Callable:
    """A kernel that calls `ours`, and PyTorch's for what flashtile cannot do. Backward takes the way that forward took,
    since the library refuses the same problems in both."""

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return ours(*args, **kwargs)
        except (TypeError, ValueError, NotImplementedError):
            if pytorchs is None:
                raise
        return pytorchs(keyset, *args, **kwargs)

    return kernel


def _forward(given: tuple, recipe: Recipe, rng: Optional[Tensor], heads_first: bool) -> tuple[Tensor, Tensor]:
    out, lse = calls_of("forward", given, recipe, True, heads_first).run(given, rng)
    return out, lse


def _backward(given: tuple, recipe: Recipe, rng: Optional[Tensor], heads_first: bool) -> tuple[Tensor, ...]:
    """dq, dk and dv. given: the inputs, then out, lse, dout and no dlse."""
    dq, dk, dv, *_ = calls_of("backward", given, recipe, (False, False), heads_first).run(given, rng)
    return dq, dk, dv


def _rest(bias: Optional[Tensor], causal: int, scale: Optional[float], dropout_p: float,
          packed: tuple = (None, None, None, -1, -1), slopes: Optional[Tensor] = None,
          window: tuple[int, int] = (-1, -1)) -> tuple[tuple, Recipe]:
    """A call's tensors after q, k and v, and its options."""
    return (slopes, bias, None, *packed[:3], None, *ONE_FOR_ALL), (
        _options, causal, scale, dropout_p, deterministic(), packed[3:], window)


def _options(causal: int, scale: Optional[float], dropout_p: float, deterministic: bool, lengths: tuple[int, int],
             window: tuple[int, int]) -> CallOptions:
    return CallOptions(max_seqlen_q=lengths[0], max_seqlen_k=lengths[1], causal=causal, scale=scale,
                       window_left=window[0], window_right=window[1], dropout=dropout_p, deterministic=deterministic)


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise NotImplementedError("PyTorch's CPU operator keeps no dropout state: use flashtile.attention")


def _cpu_forward(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
                 attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> tuple[Tensor, Tensor]:
    _refuse_dropout(dropout_p)
    tensors, recipe = _rest(attn_mask, TOP_LEFT * is_causal, scale, 0.0)
    out, lse = _forward((query, key, value, *tensors), recipe, None, True)
    return out, lse.transpose(1, 2).contiguous().transpose(1, 2)  # PyTorch's layout, which compiled code relies on


def _cpu_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
                  dropout_p: float, is_causal: bool, *, attn_mask: Optional[Tensor] = None,
                  scale: Optional[float] = None) -> tuple[Tensor, ...]:
    _refuse_dropout(dropout_p)
    tensors, recipe = _rest(attn_mask, TOP_LEFT * is_causal, scale, 0.0)
    return _backward((query, key, value, *tensors, out, logsumexp.contiguous(), grad_out, None), recipe, None, True)


def _cuda_forward(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
                  return_debug_mask: bool = False, *, scale: Optional[float] = None) -> tuple[Any, ...]:
    rng = draw(query) if dropout_p else query.new_empty(2, dtype=torch.int64)
    _, recipe = _rest(None, TOP_LEFT * is_causal, scale, dropout_p)
    out, lse = _forward((query, key, value), recipe, rng, True)
    return (out, lse, None, None, query.shape[2], key.shape[2], rng, rng.new_empty(()), query.new_empty(0))


def _cuda_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
                   cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
                   philox_seed: Tensor, philox_offset: Tensor, *,
                   scale: Optional[float] = None) -> tuple[Tensor, ...]:
    tensors, recipe = _rest(None, TOP_LEFT * is_causal, scale, dropout_p)
    return _backward((query, key, value, *tensors, out, logsumexp, grad_out, None), recipe, philox_seed, True)


def _window(left: Optional[int], right: Optional[int]) -> tuple[int, int]:
    return -1 if left is None else left, -1 if right is None else right


def _packed(cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], seqused_k: Optional[Tensor], max_q: int,
            max_k: int) -> tuple:
    if cum_seq_q is None:
        return None, None, seqused_k, -1, -1
    return cum_seq_q, cum_seq_k, seqused_k, max_q, max_k


def _varlen_forward(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: Optional[float] = None,
    window_size_left: Optional[int] = None, window_size_right: Optional[int] = None,
    seqused_k: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
    num_splits: Optional[int] = None,
) -> tuple[Tensor, ...]:
    window = _window(window_size_left, window_size_right)
    rng = draw(query) if dropout_p else query.new_empty(2, dtype=torch.int64)
    if block_table is not None:
        out, lse = attention(query, key, value, causal=is_causal, window=window, scale=scale, dropout_p=dropout_p,
                             alibi_slopes=alibi_slopes, cu_seqlens_q=cum_seq_q, max_seqlen_q=max_q,
                             seqused_k=seqused_k, block_table=block_table, num_splits=num_splits or 0, return_lse=True)
    else:
        tensors, recipe = _rest(None, BOTTOM_RIGHT * is_causal, scale, dropout_p,
                                _packed(cum_seq_q, cum_seq_k, seqused_k, max_q, max_k), alibi_slopes, window)
        out, lse = _forward((query, key, value, *tensors), recipe, rng, False)
    return out, lse, rng, rng.new_empty(()), query.new_empty(0)


def _varlen_forward_into(out: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """As _varlen_forward; out is written, and lse returned."""
    result, lse, *_ = _varlen_forward(*args, **kwargs)
    out.copy_(result)
    return lse


def _varlen_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int, max_k: int, dropout_p: float,
    is_causal: bool, rng_state: Tensor, unused: Tensor, *, scale: Optional[float] = None,
    window_size_left: Optional[int] = None, window_size_right: Optional[int] = None,
) -> tuple[Tensor, ...]:
    tensors, recipe = _rest(None, BOTTOM_RIGHT * is_causal, scale, dropout_p,
                             _packed(cum_seq_q, cum_seq_k, None, max_q, max_k), None,
                             _window(window_size_left, window_size_right))
    return _backward((query, key, value, *tensors, out, logsumexp, grad_out, None), recipe, rng_state, False)


# Of these PyTorch has none for the CPU, so that torch.nn.attention.varlen runs there with flashtile alone.
_VARLEN = {
    "_flash_attention_forward": _varlen_forward,
    "_flash_attention_forward_no_dropout_inplace": _varlen_forward_into,
    "_flash_attention_backward": _varlen_backward,
}
_IMPLEMENTATIONS = {
    "CPU": {
        "_scaled_dot_product_flash_attention_for_cpu": _cpu_forward,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_backward,
        **_VARLEN,
    },
    "CUDA": {
        "_scaled_dot_product_flash_attention": _cuda_forward,
        "_scaled_dot_product_flash_attention_backward": _cuda_backward,
        **_VARLEN,
    },
}
