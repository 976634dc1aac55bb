"""flash_attn_interface's autograd functions, for code that calls their `apply`. flash_attn_func and the other public
functions do not use them."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._functional import _flash_attn_forward, _flash_attn_varlen_forward, gradients, packed_arguments

Window = tuple[int, int]


def _attend(ctx: Any, q: Tensor, k: Tensor, v: Tensor, packed: Optional[tuple], dropout_p: float,
            scale: Optional[float], causal: bool, window: Window, softcap: float, slopes: Optional[Tensor],
            deterministic: bool, return_softmax: bool) -> Any:
    """The forward pass of all functions here. packed: cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k."""
    options = (dropout_p, scale, causal, *window, softcap, slopes, return_softmax and dropout_p > 0)
    if packed is None:
        out, lse, s_dmask, rng = _flash_attn_forward(q, k, v, *options)
    else:
        out, lse, s_dmask, rng = _flash_attn_varlen_forward(q, k, v, *packed, *options)
    cu_seqlens = (None, None) if packed is None else packed[:2]
    ctx.save_for_backward(q, k, v, out, lse, rng, slopes, *cu_seqlens)
    ctx.lengths = None if packed is None else packed[2:]
    ctx.options = dropout_p, scale, causal, window, softcap
    ctx.deterministic = deterministic
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(s_dmask)
    return (out, lse, s_dmask) if return_softmax else out


def _gradients(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor] = None, _: Any = None) -> tuple[Tensor, ...]:
    """The backward pass of all functions here: dq, dk and dv."""
    q, k, v, out, lse, rng, slopes, *cu_seqlens = ctx.saved_tensors
    packed = {} if ctx.lengths is None else packed_arguments(q, k, v, *cu_seqlens, *ctx.lengths)[2]
    return gradients(torch.zeros_like(out) if dout is None else dout, dlse, q, k, v, out, lse, packed, *ctx.options,
                     slopes, ctx.deterministic, rng)


class FlashAttnFunc(torch.autograd.Function):
    """Of q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                return_softmax, is_grad_enabled=True):
        return _attend(ctx, q, k, v, None, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                       deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        return *_gradients(ctx, dout, *args), *(None,) * 9


class FlashAttnQKVPackedFunc(torch.autograd.Function):
    """Of qkv (batch, seqlen, 3, nheads, d)."""

    @staticmethod
    def forward(ctx, qkv, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                return_softmax, is_grad_enabled=True):
        return _attend(ctx, *qkv.unbind(-3), None, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                       deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        return torch.stack(_gradients(ctx, dout, *args), -3), *(None,) * 9


class FlashAttnKVPackedFunc(torch.autograd.Function):
    """Of q and kv (batch, seqlen, 2, nheads_k, d)."""

    @staticmethod
    def forward(ctx, q, kv, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                return_softmax, is_grad_enabled=True):
        return _attend(ctx, q, *kv.unbind(-3), None, dropout_p, softmax_scale, causal, window_size, softcap,
                       alibi_slopes, deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        dq, dk, dv = _gradients(ctx, dout, *args)
        return dq, torch.stack((dk, dv), -3), *(None,) * 9


class FlashAttnVarlenFunc(torch.autograd.Function):
    """Of packed q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                window_size, softcap, alibi_slopes, deterministic, return_softmax, block_table=None,
                is_grad_enabled=True):
        if block_table is not None:
            raise NotImplementedError("FlashAttnVarlenFunc's block_table (paged keys) is not in flashtile: use "
                                      "flash_attn_varlen_func")
        return _attend(ctx, q, k, v, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), dropout_p, softmax_scale,
                       causal, window_size, softcap, alibi_slopes, deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        return *_gradients(ctx, dout, *args), *(None,) * 14


class FlashAttnVarlenQKVPackedFunc(torch.autograd.Function):
    """Of packed qkv (total, 3, nheads, d)."""

    @staticmethod
    def forward(ctx, qkv, cu_seqlens, max_seqlen, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                deterministic, return_softmax, is_grad_enabled=True):
        return _attend(ctx, *qkv.unbind(-3), (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen), dropout_p, softmax_scale,
                       causal, window_size, softcap, alibi_slopes, deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        return torch.stack(_gradients(ctx, dout, *args), -3), *(None,) * 11


class FlashAttnVarlenKVPackedFunc(torch.autograd.Function):
    """Of packed q and kv (total_k, 2, nheads_k, d)."""

    @staticmethod
    def forward(ctx, q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                window_size, softcap, alibi_slopes, deterministic, return_softmax, is_grad_enabled=True):
        return _attend(ctx, q, *kv.unbind(-3), (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), dropout_p,
                       softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_softmax)

    @staticmethod
    def backward(ctx, dout, *args):
        dq, dk, dv = _gradients(ctx, dout, *args)
        return dq, torch.stack((dk, dv), -3), *(None,) * 13
