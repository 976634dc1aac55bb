"""flash_attn_interface's private functions: attention without autograd, forward and backward, dense and packed, with
flash-attn 2.8's arguments and results. Ring attention and other sequence parallelism are built on them.

forward gives (out, softmax_lse, S_dmask, rng_state); S_dmask is empty unless return_softmax, and rng_state, int64 (2),
is dropout's seed and offset, which backward wants back. backward writes into those of dq, dk and dv that it is given
and gives D = rowsum(dout * out): fp32 (batch, nheads, seqlen_q rounded up to 128), packed (nheads, total_q + 128
batch), where each sequence starts 128 places later than the one before it ends.
"""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._attention import BOTTOM_RIGHT, attention, draw
from .._ops import backward_op, deterministic as always_deterministic, forward_op
from .._options import CallOptions
from .._run import complete, innermost, usable
from .._structs import INPUT_NAMES, ONE_FOR_ALL
from ._paged import rows_of_pages
from ._probabilities import places, signed_probabilities

_ROUNDED_TO = 128
Forward = tuple[Tensor, Tensor, Tensor, Tensor]


def _flash_attn_forward(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: Optional[float], causal: bool,
    window_size_left: int, window_size_right: int, softcap: float, alibi_slopes: Optional[Tensor], return_softmax: bool,
) -> Forward:
    """Dense: q (batch, seqlen_q, nheads, d)."""
    return _forward(q, k, v, {}, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                    alibi_slopes, return_softmax)


def _flash_attn_varlen_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    return_softmax: bool = False, block_table: Optional[Tensor] = None, leftpad_k: Optional[Tensor] = None,
    seqused_k: Optional[Tensor] = None, zero_tensors: bool = False,
) -> Forward:
    """Packed: q (total_q, nheads, d). Rows of no sequence are zero whatever zero_tensors says."""
    with torch.no_grad():
        k, v, packed = packed_arguments(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table,
                                        seqused_k, dropout_p)
        if "block_table" in packed:
            first = None if leftpad_k is None else leftpad_k.to(torch.int32)
            out, lse = attention(q, k, v, causal=causal, window=(window_size_left, window_size_right),
                                 scale=softmax_scale, softcap=softcap, alibi_slopes=alibi_slopes, first_k=first,
                                 return_lse=True, **packed)
            return out, lse, q.new_empty(0), q.new_zeros(2, dtype=torch.int64)
    if leftpad_k is not None:
        position = torch.arange(packed["max_seqlen_k"], device=k.device)
        packed["mask"] = (position >= leftpad_k[:, None])[:, None, None]
    return _forward(q, k, v, packed, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                    alibi_slopes, return_softmax)


def _flash_attn_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, dq: Optional[Tensor],
    dk: Optional[Tensor], dv: Optional[Tensor], dropout_p: float, softmax_scale: Optional[float], causal: bool,
    window_size_left: int, window_size_right: int, softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
    rng_state: Optional[Tensor] = None,
) -> Tensor:
    """Dense. out and softmax_lse may be those of more keys than k and v hold: then dq is the part of these keys in the
    gradient, and dk and dv are the gradients of these keys."""
    _write((dq, dk, dv), gradients(dout, None, q, k, v, out, softmax_lse, {}, dropout_p, softmax_scale, causal,
                                   (window_size_left, window_size_right), softcap, alibi_slopes, deterministic,
                                   rng_state))
    d = _d(dout, out).transpose(1, 2)
    return F.pad(d, (0, -d.shape[-1] % _ROUNDED_TO))


def _flash_attn_varlen_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, dq: Optional[Tensor],
    dk: Optional[Tensor], dv: Optional[Tensor], cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size_left: int,
    window_size_right: int, softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
    rng_state: Optional[Tensor] = None, zero_tensors: bool = False,
) -> Tensor:
    """Packed. Gradients of rows of no sequence are zero whatever zero_tensors says."""
    _, _, packed = packed_arguments(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    _write((dq, dk, dv), gradients(dout, None, q, k, v, out, softmax_lse, packed, dropout_p, softmax_scale, causal,
                                   (window_size_left, window_size_right), softcap, alibi_slopes, deterministic,
                                   rng_state))
    batch = cu_seqlens_q.numel() - 1
    sequence, _ = places(cu_seqlens_q, q.shape[0])
    d = q.new_zeros(q.shape[1], q.shape[0] + _ROUNDED_TO * batch, dtype=torch.float32)
    row = torch.arange(q.shape[0], device=q.device)
    d[:, row + _ROUNDED_TO * sequence.clamp(max=batch)] = _d(dout, out).transpose(0, 1)
    return d


def packed_arguments(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                     max_seqlen_k: int, block_table: Optional[Tensor] = None, seqused_k: Optional[Tensor] = None,
                     dropout_p: float = 0.0) -> tuple[Tensor, Tensor, dict]:
    """k, v and `attention`'s arguments for a packed batch. With a block_table k and v are pages. They are copied into
    rows where attention cannot read them: with dropout or a gradient."""
    if block_table is not None:
        if seqused_k is None:
            seqused_k = (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).to(torch.int32)
        recorded = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        if dropout_p == 0.0 and not recorded:
            return k, v, {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "seqused_k": seqused_k,
                          "block_table": block_table}
        k, v = rows_of_pages(k, block_table), rows_of_pages(v, block_table)
        max_seqlen_k = k.shape[1]
        starts = torch.arange(k.shape[0] + 1, device=k.device, dtype=torch.int64) * max_seqlen_k
        cu_seqlens_k, k, v = starts, k.flatten(0, 1), v.flatten(0, 1)
    return k, v, {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q,
                  "max_seqlen_k": max_seqlen_k, "seqused_k": seqused_k}


def gradients(dout: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
              packed: dict, dropout_p: float, scale: Optional[float], causal: bool, window: tuple[int, int],
              softcap: float, slopes: Optional[Tensor], deterministic: bool,
              rng: Optional[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv."""
    if dropout_p and rng is None:
        raise ValueError(f"rng_state is None, allowed with dropout_p={dropout_p} is the one that forward returned")
    tensors, options = _rest(packed, dropout_p, scale, causal, window, softcap, slopes, deterministic)
    with torch.no_grad():
        given = usable((q, k, v, *tensors, innermost(out), innermost(lse), dout, dlse))
        inputs, results = given[:len(INPUT_NAMES)], given[len(INPUT_NAMES):]
        dq, dk, dv, *_ = backward_op(*inputs, *options, rng if dropout_p else None, *results, False, False)
    return dq, dk, dv


def _forward(q: Tensor, k: Tensor, v: Tensor, packed: dict, dropout_p: float, scale: Optional[float], causal: bool,
             window: tuple[int, int], softcap: float, slopes: Optional[Tensor], return_softmax: bool) -> Forward:
    tensors, options = _rest(packed, dropout_p, scale, causal, window, softcap, slopes, False)
    with torch.no_grad():
        rng = draw(q) if dropout_p else q.new_zeros(2, dtype=torch.int64)
        out, lse = forward_op(*usable(complete((q, k, v, *tensors))), *options, rng)
        if not return_softmax:
            return out, lse, q.new_empty(0), rng
        named = {"causal": causal, "window": window, "scale": scale, "softcap": softcap, "alibi_slopes": slopes}
        return out, lse, signed_probabilities(q, k, {**named, **packed}, dropout_p, rng), rng


def _rest(packed: dict, dropout_p: float, scale: Optional[float], causal: bool, window: tuple[int, int], softcap: float,
          slopes: Optional[Tensor], deterministic: bool) -> tuple[tuple, CallOptions]:
    """The operators' tensors after q, k and v, and their options."""
    tensors = (slopes, None, *map(packed.get, ("mask", "cu_seqlens_q", "cu_seqlens_k", "seqused_k")), None,
               *ONE_FOR_ALL)
    lengths = {name: packed[name] for name in ("max_seqlen_q", "max_seqlen_k") if packed}
    left, right = window
    return tensors, CallOptions(**lengths, causal=BOTTOM_RIGHT if causal else 0, scale=scale, softcap=softcap,
                                window_left=left, window_right=right, dropout=dropout_p,
                                deterministic=deterministic or always_deterministic())


def _write(where: tuple[Optional[Tensor], ...], gradients: tuple[Tensor, ...]) -> None:
    for tensor, gradient in zip(where, gradients):
        if tensor is not None:
            tensor.copy_(gradient)


def _d(dout: Tensor, out: Tensor) -> Tensor:
    return (dout.detach().float() * out.detach()).sum(-1)
