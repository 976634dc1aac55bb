"""flashtile behind PyTorch's own dispatcher: torch.nn.attention's registry of flash implementations (PyTorch 2.11 on).

    flashtile.register_flash_attention_impl()
    torch.nn.attention.activate_flash_attention_impl("flashtile")       # the user's step, never ours

Then the flash backend of F.scaled_dot_product_attention, on CPU and CUDA, and torch.nn.attention.varlen run flashtile.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._attention import BOTTOM_RIGHT, TOP_LEFT, draw
from ._ops import attend, backward_op


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
                self.library.impl(name, function, device, allow_override=True)

    def remove(self) -> None:
        if self.library is not None:
            self.library._destroy()
        self.library = None


def _rest(bias: Optional[Tensor], causal: int, scale: Optional[float], dropout_p: float,
          packed: tuple = (None, None, None, -1, -1), slopes: Optional[Tensor] = None,
          window: tuple[int, int] = (-1, -1)) -> tuple[tuple, tuple]:
    """attend's tensors after q, k and v, and its options."""
    options = (causal, 0, scale, 0.0, *window, dropout_p, torch.are_deterministic_algorithms_enabled(), False)
    return (slopes, bias, None, *packed[:3]), (*packed[3:], *options)


def _rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """(batch, heads, seqlen, d) as (batch, seqlen, heads, d)."""
    return tuple(tensor.transpose(1, 2) for tensor in tensors)


def _cpu_forward(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
                 attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> tuple[Tensor, Tensor]:
    rng = draw(query) if dropout_p else None
    tensors, options = _rest(attn_mask, TOP_LEFT * is_causal, scale, dropout_p)
    out, lse = attend((*_rows(query, key, value), *tensors), options, rng)
    return out.transpose(1, 2), lse


def _cpu_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
                  dropout_p: float, is_causal: bool, *, attn_mask: Optional[Tensor] = None,
                  scale: Optional[float] = None) -> tuple[Tensor, ...]:
    if dropout_p:
        raise NotImplementedError("PyTorch's CPU operator keeps no dropout state: use flashtile.attention")
    tensors, options = _rest(attn_mask, TOP_LEFT * is_causal, scale, 0.0)
    q, k, v, o, dout = _rows(query, key, value, out, grad_out)
    grads = backward_op(q, k, v, *tensors, *options, None, o, logsumexp, dout, None, False)
    return tuple(grad.transpose(1, 2) for grad in grads[:3])


def _cuda_forward(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
                  return_debug_mask: bool = False, *, scale: Optional[float] = None) -> tuple[Any, ...]:
    rng = draw(query) if dropout_p else query.new_empty(2, dtype=torch.int64)
    tensors, options = _rest(None, TOP_LEFT * is_causal, scale, dropout_p)
    out, lse = attend((*_rows(query, key, value), *tensors), options, rng)
    return (out.transpose(1, 2), lse, None, None, query.shape[2], key.shape[2], rng, rng.new_empty(()),
            query.new_empty(0))


def _cuda_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
                   cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
                   philox_seed: Tensor, philox_offset: Tensor, *,
                   scale: Optional[float] = None) -> tuple[Tensor, ...]:
    tensors, options = _rest(None, TOP_LEFT * is_causal, scale, dropout_p)
    q, k, v, o, dout = _rows(query, key, value, out, grad_out)
    grads = backward_op(q, k, v, *tensors, *options, philox_seed, o, logsumexp, dout, None, False)
    return tuple(grad.transpose(1, 2) for grad in grads[:3])


def _window(left: Optional[int], right: Optional[int]) -> tuple[int, int]:
    return -1 if left is None else left, -1 if right is None else right


def _packed(cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], seqused_k: Optional[Tensor], max_q: int,
            max_k: int) -> tuple:
    if cum_seq_q is None:
        return None, None, seqused_k, -1, -1
    return cum_seq_q, cum_seq_k, seqused_k, max_q, max_k


def _cuda_varlen_forward(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: Optional[float] = None,
    window_size_left: Optional[int] = None, window_size_right: Optional[int] = None,
    seqused_k: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
    num_splits: Optional[int] = None,
) -> tuple[Tensor, ...]:
    if block_table is not None:
        raise NotImplementedError("paged keys (block_table) are not in flashtile yet")
    rng = draw(query) if dropout_p else query.new_empty(2, dtype=torch.int64)
    tensors, options = _rest(None, BOTTOM_RIGHT * is_causal, scale, dropout_p,
                             _packed(cum_seq_q, cum_seq_k, seqused_k, max_q, max_k), alibi_slopes,
                             _window(window_size_left, window_size_right))
    out, lse = attend((query, key, value, *tensors), options, rng)
    return out, lse, rng, rng.new_empty(()), query.new_empty(0)


def _cuda_varlen_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int, max_k: int, dropout_p: float,
    is_causal: bool, rng_state: Tensor, unused: Tensor, *, scale: Optional[float] = None,
    window_size_left: Optional[int] = None, window_size_right: Optional[int] = None,
) -> tuple[Tensor, ...]:
    tensors, options = _rest(None, BOTTOM_RIGHT * is_causal, scale, dropout_p,
                             _packed(cum_seq_q, cum_seq_k, None, max_q, max_k), None,
                             _window(window_size_left, window_size_right))
    return backward_op(query, key, value, *tensors, *options, rng_state, out, logsumexp, grad_out, None, False)[:3]


_IMPLEMENTATIONS = {
    "CPU": {
        "_scaled_dot_product_flash_attention_for_cpu": _cpu_forward,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_backward,
    },
    "CUDA": {
        "_scaled_dot_product_flash_attention": _cuda_forward,
        "_scaled_dot_product_flash_attention_backward": _cuda_backward,
        "_flash_attention_forward": _cuda_varlen_forward,
        "_flash_attention_backward": _cuda_varlen_backward,
    },
}
