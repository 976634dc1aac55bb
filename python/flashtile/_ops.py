"""Attention as PyTorch operators: torch.ops.flashtile.forward and .backward, with fake kernels and autograd.

Tracers (torch.compile, torch.export, make_fx), transforms and tensor subclasses need the operators. A plain eager call
does not, and going round the dispatcher saves 10 to 20 microseconds of it: `attend` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ._call import run

# Inputs, then options, then the lse's use; the operators' arguments in order. Dropout's seed and offset are a tensor
# (int64, 2 of them, on q's device), so that nothing synchronises and a CUDA graph draws afresh at each replay.
_TENSORS = 9


def _out(q: Tensor, v: Tensor, packed: bool) -> Tensor:
    """An empty out. Rows that belong to no sequence are never written, and so start at zero; so it is with lse."""
    new = q.new_zeros if packed else q.new_empty
    return new((*q.shape[:-1], v.shape[-1]))


def _results(q: Tensor, v: Tensor, packed: bool) -> tuple[Tensor, Tensor]:
    """Empty out and lse."""
    new = q.new_zeros if packed else q.new_empty
    shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    return _out(q, v, packed), new(shape, dtype=torch.float32)


def _gradients(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, packed: bool,
               need_dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    new = torch.zeros_like if packed else torch.empty_like
    dbias = q.new_empty(0)
    if bias is not None and need_dbias:
        dbias = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    return new(q), new(k), new(v), dbias


def _forward(
    q: Tensor, k: Tensor, v: Tensor, alibi_slopes: Optional[Tensor], bias: Optional[Tensor], mask: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor],
    max_seqlen_q: int, max_seqlen_k: int, causal: int, alignment: int, scale: Optional[float], softcap: float,
    window_left: int, window_right: int, dropout: float, deterministic: bool, batch_invariant: bool,
    rng: Optional[Tensor],
) -> tuple[Tensor, Tensor]:
    out, lse = _results(q, v, cu_seqlens_q is not None)
    run("forward", (q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, seqused_k, out, lse), max_seqlen_q,
        max_seqlen_k, causal, alignment, scale, softcap, window_left, window_right, dropout, deterministic,
        batch_invariant, rng)
    return out, lse


def _backward(
    q: Tensor, k: Tensor, v: Tensor, alibi_slopes: Optional[Tensor], bias: Optional[Tensor], mask: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor],
    max_seqlen_q: int, max_seqlen_k: int, causal: int, alignment: int, scale: Optional[float], softcap: float,
    window_left: int, window_right: int, dropout: float, deterministic: bool, batch_invariant: bool,
    rng: Optional[Tensor], out: Tensor, lse: Tensor, dout: Tensor, dlse: Optional[Tensor], need_dbias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, dbias = _gradients(q, k, v, bias, cu_seqlens_q is not None, need_dbias)
    run("backward", (q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, seqused_k, out, lse, dout, dlse,
                     dq, dk, dv, dbias if need_dbias else None), max_seqlen_q, max_seqlen_k, causal, alignment, scale,
        softcap, window_left, window_right, dropout, deterministic, batch_invariant, rng)
    return dq, dk, dv, dbias


forward_op = torch.library.custom_op("flashtile::forward", _forward, mutates_args=())
backward_op = torch.library.custom_op("flashtile::backward", _backward, mutates_args=())


@forward_op.register_fake
def _(q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, *_):
    return _results(q, v, cu_seqlens_q is not None)


@backward_op.register_fake
def _(q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, *rest):
    return _gradients(q, k, v, bias, cu_seqlens_q is not None, rest[-1])


def innermost(tensor: Tensor) -> Tensor:
    """The tensor itself where its innermost dimension is contiguous, as the library wants it, else a copy."""
    if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)  # .contiguous() leaves strides of 0 to an empty tensor


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_TENSORS], inputs[-1], *output)
    ctx.options = inputs[_TENSORS:-1]


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, rng, out, lse = ctx.saved_tensors
    if dout is None and dlse is None:
        return (None,) * len(ctx.needs_input_grad)
    dout = torch.zeros_like(out) if dout is None else innermost(dout)
    dlse = None if dlse is None else innermost(dlse)
    if eager(dout, out) and not torch.is_grad_enabled():
        call: Callable = _backward
    else:  # traced, or gradients of gradients are asked for: the operator says that it has none
        call = _TransformedBackward.apply if _transformed() else backward_op
    need_dbias = ctx.needs_input_grad[4]
    dq, dk, dv, dbias = call(*inputs, *ctx.options, rng, out, lse, dout, dlse, need_dbias)
    none = (None,) * (len(ctx.options) + _TENSORS - 4)
    return dq, dk, dv, None, dbias if need_dbias else None, *none


forward_op.register_autograd(_differentiate, setup_context=_remember)


class _Attend(torch.autograd.Function):
    """What forward_op is, without the dispatcher. With a setup_context PyTorch would look up forward's signature at
    each call, which takes longer than all else here."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        output = _forward(*inputs)
        _remember(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


class _TransformedBackward(torch.autograd.Function):
    """backward_op for torch.func's transforms, which an operator's own autograd does not know."""

    generate_vmap_rule = True
    forward = staticmethod(backward_op)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise NotImplementedError("flashtile has no gradients of gradients")


class _Transformed(torch.autograd.Function):
    """forward_op for torch.func's transforms."""

    generate_vmap_rule = True
    forward = staticmethod(forward_op)
    setup_context = staticmethod(_remember)
    backward = staticmethod(_differentiate)


def eager(*tensors: Tensor | None) -> bool:
    """True where plain tensors are computed with, and nothing watches: no tracer, transform, mode or subclass."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            return False
    return True


_PLAIN = (Tensor, type(None), torch.nn.Parameter)


def _transformed() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def attend(arguments: tuple, need_lse: bool = True) -> tuple[Tensor, Any]:
    """(out, lse), differentiable in q, k, v and bias, of forward_op's arguments; lse may be None where not needed."""
    if not eager(*arguments[:_TENSORS]):
        return (_Transformed.apply if _transformed() else forward_op)(*arguments)
    q, k, v, _, bias, _, cu_seqlens_q, *_ = arguments
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad
                                    or (bias is not None and bias.requires_grad)):
        return _Attend.apply(*arguments)
    if need_lse:
        return _forward(*arguments)
    out = _out(q, v, cu_seqlens_q is not None)
    run("forward", (*arguments[:_TENSORS], out, None), *arguments[_TENSORS:])
    return out, None
