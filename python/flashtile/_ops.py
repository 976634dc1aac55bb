"""Attention as PyTorch operators: torch.ops.flashtile.forward and .backward, with fake kernels and autograd.

Tracers (torch.compile, torch.export, make_fx), transforms and tensor subclasses need the operators. A plain eager call
does not, and going round the dispatcher saves 10 to 20 microseconds of it: `attend` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ._run import run, usable

# The operators' arguments are nine tensors, the options that a Call takes, and dropout's seed and offset: a tensor too
# (int64, 2 of them, on q's device), so that nothing synchronises and a CUDA graph draws afresh at each replay.
_TENSORS = 9


def _results(given: Sequence[Any], want_lse: bool = True) -> tuple[Tensor, Tensor | None]:
    """Empty out and lse. Rows that belong to no sequence are never written, and so start at zero; so it is with dq, dk
    and dv."""
    q, _, v, _, _, _, cu_seqlens_q, *_ = given
    packed = cu_seqlens_q is not None
    new = q.new_zeros if packed else q.new_empty
    shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    return new((*q.shape[:-1], v.shape[-1])), new(shape, dtype=torch.float32) if want_lse else None


def _gradients(given: Sequence[Any], need_dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    q, k, v, _, bias, _, cu_seqlens_q, *_ = given
    new = torch.empty_like if cu_seqlens_q is None else torch.zeros_like
    dbias = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device) if need_dbias else None
    return new(q), new(k), new(v), dbias


def _forward(
    q: Tensor, k: Tensor, v: Tensor, alibi_slopes: Optional[Tensor], bias: Optional[Tensor], mask: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor],
    max_seqlen_q: int, max_seqlen_k: int, causal: int, alignment: int, scale: Optional[float], softcap: float,
    window_left: int, window_right: int, dropout: float, deterministic: bool, batch_invariant: bool,
    rng: Optional[Tensor],
) -> tuple[Tensor, Tensor]:
    out, lse = run("forward", (q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, seqused_k),
                   (max_seqlen_q, max_seqlen_k, causal, alignment, scale, softcap, window_left, window_right, dropout,
                    deterministic, batch_invariant), rng, True, _results)
    return out, lse


def _backward(
    q: Tensor, k: Tensor, v: Tensor, alibi_slopes: Optional[Tensor], bias: Optional[Tensor], mask: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor],
    max_seqlen_q: int, max_seqlen_k: int, causal: int, alignment: int, scale: Optional[float], softcap: float,
    window_left: int, window_right: int, dropout: float, deterministic: bool, batch_invariant: bool,
    rng: Optional[Tensor], out: Tensor, lse: Tensor, dout: Tensor, dlse: Optional[Tensor], need_dbias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, dbias = run(
        "backward", (q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, seqused_k, out, lse, dout, dlse),
        (max_seqlen_q, max_seqlen_k, causal, alignment, scale, softcap, window_left, window_right, dropout,
         deterministic, batch_invariant), rng, need_dbias, _gradients)
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


forward_op = torch.library.custom_op("flashtile::forward", _forward, mutates_args=())
backward_op = torch.library.custom_op("flashtile::backward", _backward, mutates_args=())


@forward_op.register_fake
def _(*arguments):
    return _results(arguments[:_TENSORS])


@backward_op.register_fake
def _(q, *rest):
    dq, dk, dv, dbias = _gradients((q, *rest), rest[-1])
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    """What backward needs of forward_op's arguments and results."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_TENSORS], *output, inputs[-1])
    ctx.options = inputs[_TENSORS:-1]


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of forward_op's arguments."""
    *given, out, lse, rng = ctx.saved_tensors
    none = (None,) * (len(ctx.options) + _TENSORS - 4)
    if dout is None and dlse is None:
        return None, None, None, None, None, *none
    given = usable((*given, out, lse, torch.zeros_like(out) if dout is None else dout, dlse))
    need_dbias = ctx.needs_input_grad[4]
    # Where gradients of gradients are asked for, the operator says that it has none.
    operator = _TransformedBackward.apply if _transformed() else backward_op
    dq, dk, dv, dbias = operator(*given[:_TENSORS], *ctx.options, rng, *given[_TENSORS:], need_dbias)
    return dq, dk, dv, None, dbias if need_dbias else None, *none


forward_op.register_autograd(_differentiate, setup_context=_remember)


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


class _Eager(torch.autograd.Function):
    """What forward_op is, without the dispatcher: of the tensors, the options, rng, and whether lse is a result.
    Forward has its context as an argument, since with a setup_context PyTorch would look up its signature at each call,
    which takes longer than all else here."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor | tuple[Tensor, Tensor]:  # type: ignore[override]
        *given, options, rng, want_lse = inputs
        out, lse = run("forward", given, options, rng, True, _results)
        ctx.save_for_backward(*given, out, lse, rng)
        ctx.options = options
        if not want_lse:
            return out
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None,  # type: ignore[override]
                 dlse: Tensor | None = None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() or dout is None or not eager((dout, dlse)):
            return *_differentiate(ctx, dout, dlse)[:_TENSORS], None, None, None
        *given, rng = ctx.saved_tensors
        dq, dk, dv, dbias = run("backward", (*given, dout, dlse), ctx.options, rng, ctx.needs_input_grad[4], _gradients)
        return dq, dk, dv, None, dbias, None, None, None, None, None, None, None


# Function.apply without its Python half, which looks for torch.func's transforms.
_record = super(torch.autograd.Function, _Eager).apply


def eager(tensors: Sequence[Tensor | None]) -> bool:
    """True where plain tensors are computed with, and nothing watches: no tracer, transform, mode or subclass."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    for tensor in tensors:
        if tensor is not None and type(tensor) not in _PLAIN:
            return False
    return True


_PLAIN = (Tensor, torch.nn.Parameter)


def _transformed() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def attend(given: tuple[Optional[Tensor], ...], options: tuple, rng: Optional[Tensor],
           want_lse: bool = True) -> tuple[Tensor, Any]:
    """(out, lse), differentiable in q, k, v and bias; lse may be None where not wanted. `given` are nine tensors,
    options and rng the rest of forward_op's arguments."""
    if not eager(given):
        operator = _Transformed.apply if _transformed() else forward_op
        return operator(*usable(given), *options, rng)
    if torch.is_grad_enabled():
        q, k, v, _, bias, *_ = given
        if q.requires_grad or k.requires_grad or v.requires_grad or (bias is not None and bias.requires_grad):
            recorded = _record(*given, options, rng, want_lse)
            return recorded if want_lse else (recorded, None)
    out, lse = run("forward", given, options, rng, want_lse, _results)
    return out, lse
