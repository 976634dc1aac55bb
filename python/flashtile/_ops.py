"""Attention as PyTorch operators: torch.ops.flashtile.forward and .backward, with fake kernels and autograd.

Tracers (torch.compile, torch.export, make_fx), torch.func's transforms and tensor subclasses need the operators. A
plain eager call does not, and PyTorch's dispatcher would take most of its time. `attend` chooses between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _flops
from ._call import DEVICES, INPUT_NAMES, Tensors
from ._define import operator
from ._forward_mode import forward_mode, refuse_forward_mode
from ._options import CallOptions, Recipe, options_of, schema
from ._run import Calls, calls_of, complete, gradients, results, turned, usable
from ._sdpa_layout import as_pytorch_traced
from ._structs import ONE_FOR_ALL

# The operators' arguments are the inputs' tensors, the fields of CallOptions, and rng: int64 (2) on q's device, dropout's seed
# and offset. rng is a tensor so that no call has to synchronise and a CUDA graph draws a new mask at each replay.
_TENSORS, _OPTIONS = len(INPUT_NAMES), len(CallOptions._fields)
_BIAS, _SINKS = INPUT_NAMES.index("bias"), INPUT_NAMES.index("sinks")
_INPUTS = ", ".join(f"{'Tensor' if name in ('q', 'k', 'v') else 'Tensor?'} {name}" for name in INPUT_NAMES)
_ARGUMENTS = f"{_INPUTS}, {schema()}, Tensor? rng"
_GRADIENTS = "Tensor out, Tensor lse, Tensor dout, Tensor? dlse, bool need_dbias, bool need_dsinks"


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    given, options, rng = arguments[:_TENSORS], arguments[_TENSORS:-1], arguments[-1]
    out, lse = calls_of("forward", given, (CallOptions, *options), True).run(given, rng)
    return out, lse


def _backward(*arguments: Any) -> tuple[Any, ...]:
    inputs, options = arguments[:_TENSORS], arguments[_TENSORS:_TENSORS + _OPTIONS]
    rng, *more, need_dbias, need_dsinks = arguments[_TENSORS + _OPTIONS:]
    given = (*inputs, *more)
    return _none_is_empty(
        calls_of("backward", given, (CallOptions, *options), (need_dbias, need_dsinks)).run(given, rng))


def _none_is_empty(gradients: Sequence[Any]) -> tuple[Any, ...]:
    """An operator has a tensor for each result."""
    return tuple(gradients[0].new_empty(0) if gradient is None else gradient for gradient in gradients)


def _fake_forward(*arguments: Any) -> Tensors:
    return results(arguments[:_TENSORS])


def _fake_backward(*arguments: Any) -> tuple[Any, ...]:
    return _none_is_empty(gradients(arguments, arguments[-2:]))


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    """Saves what backward needs of forward_op's arguments and results."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_TENSORS], *output, inputs[-1])
    ctx.options = inputs[_TENSORS:-1]


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of forward_op's arguments."""
    *given, rng = ctx.saved_tensors
    needs = ctx.needs_input_grad
    grads = _by_operator(given, ctx.options, rng, dout, dlse, (needs[_BIAS], needs[_SINKS]))
    return *grads, *(None,) * (_OPTIONS + 1)


def _by_operator(given: Sequence[Tensor | None], options: tuple, rng: Tensor | None, dout: Tensor | None,
                 dlse: Tensor | None, need: tuple[bool, bool],
                 heads_first: bool = False) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs, by the operator: it raises where gradients of gradients are asked for."""
    if dout is None and dlse is None:
        return (None,) * _TENSORS
    *inputs, out, _ = given
    given = (*given, torch.zeros_like(out) if dout is None else dout, dlse)  # type: ignore[arg-type]
    given = usable(turned(given) if heads_first else given)
    function = _TransformedBackward.apply if transformed() else backward_op
    dq, dk, dv, dbias, dsinks = function(*given[:_TENSORS], *options, rng, *given[_TENSORS:], *need)
    if heads_first:
        dq, dk, dv = turned((dq, dk, dv))
    return _of_inputs(dq, dk, dv, dbias if need[0] else None, dsinks if need[1] else None)


def _of_inputs(dq: Any, dk: Any, dv: Any, dbias: Any, dsinks: Any) -> tuple[Tensor | None, ...]:
    return dq, dk, dv, None, dbias, None, None, None, None, dsinks, *ONE_FOR_ALL


forward_op = operator("forward", f"({_ARGUMENTS}) -> (Tensor, Tensor)", _forward, _fake_forward, _differentiate,
                      _remember)
backward_op = operator("backward", f"({_ARGUMENTS}, {_GRADIENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
                       _backward, _fake_backward)
_flops.register(torch.ops.flashtile.forward, torch.ops.flashtile.backward)


class _TransformedBackward(torch.autograd.Function):
    """backward_op for torch.func's transforms, which cannot use the autograd that an operator is registered with."""

    generate_vmap_rule = True
    forward = staticmethod(backward_op)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise NotImplementedError("flashtile has no gradients of gradients")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        refuse_forward_mode()


class _Transformed(torch.autograd.Function):
    """forward_op for torch.func's transforms."""

    generate_vmap_rule = True
    forward = staticmethod(forward_op)
    setup_context = staticmethod(_remember)
    backward = staticmethod(_differentiate)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        refuse_forward_mode()


class _Eager(torch.autograd.Function):
    """forward_op without the dispatcher. want_lse: whether lse is a result.

    It has no setup_context: with one, PyTorch inspects the signature of forward at every call, which takes longer than
    everything else here.
    """

    @staticmethod
    def forward(ctx: Any, calls: Calls, rng: Tensor | None, want_lse: bool,  # type: ignore[override]
                *given: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
        out, lse = calls.run(given, rng)
        ctx.save_for_backward(*given, out, lse)
        ctx.of = calls, rng
        if not want_lse:
            return out
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None,  # type: ignore[override]
                 dlse: Tensor | None = None) -> tuple[Tensor | None, ...]:
        given = ctx.saved_tensors
        calls, rng = ctx.of
        alone = len(given) < _TENSORS  # q, k and v
        needs = ctx.needs_input_grad
        need = (False, False) if alone else (needs[3 + _BIAS], needs[3 + _SINKS])
        if dout is None or _is_grad_enabled() or not eager((dout, dlse)):
            if forward_mode((*given, dout, dlse)):
                refuse_forward_mode()
            grads = _by_operator(complete(given), calls.options, rng, dout, dlse, need,
                                 calls.heads_first)
            return None, None, None, *(grads[:3] if alone else grads)
        given = (*given, dout, dlse)
        grads = calls.backward(given, need).run(given, rng)
        return None, None, None, *(grads[:3] if alone else _of_inputs(*grads))


# Function.apply without its part in Python, which looks for torch.func's transforms: `eager` has done so.
_record = super(torch.autograd.Function, _Eager).apply


# Names of this module, since looking a function up in PyTorch's modules takes as long as calling it.
_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_tracing = torch._C._is_tracing  # by torch.jit.trace
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_any_requires_grad = getattr(torch._C, "_any_requires_grad", None)  # newer than PyTorch 2.4
if _any_requires_grad is None:

    def _any_requires_grad(*tensors: Tensor | None) -> bool:
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)


deterministic = torch.are_deterministic_algorithms_enabled


def eager(tensors: Sequence[Tensor | None]) -> bool:
    """True where the tensors are plain and no tracer, transform, mode or forward-mode derivative is active. Tensor
    subclasses are not plain, nor are negated views, whose memory holds other values than they have: PyTorch's
    dispatcher resolves those before it calls an operator."""
    if _is_compiling():
        return False
    if _dispatch_modes() or _transforms() or _tracing() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in PLAIN or tensor.is_neg()):
            return False
    return True


PLAIN = (Tensor, torch.nn.Parameter)


def transformed() -> bool:
    return not _is_compiling() and _transforms()


def attend(given: Tensors, recipe: Recipe, rng: Optional[Tensor], want_lse: bool = True, heads_first: bool = False,
           plain: Optional[bool] = None) -> tuple[Tensor, Any]:
    """(out, lse), differentiable in q, k, v, bias and sinks; lse may be None where it is not wanted.

    `given` are q, k and v, or these and the tensors that follow in forward_op's arguments. heads_first: q, k, v
    and out are (batch, heads, seqlen, head_dim), and nothing is packed. plain: what `eager` has said of `given`. Autocast
    is applied.
    """
    if _is_any_autocast_enabled():
        given = _autocast(given)
    if eager(given) if plain is None else plain:
        record = _is_grad_enabled() and _any_requires_grad(*given)
        calls = calls_of("forward", given, recipe, want_lse or record, heads_first)
        if not calls.meta:
            if not record:
                out, lse = calls.run(given, rng)
                return out, lse
            if not calls.backward_foreseen:
                calls.foresee_backward(given)
            recorded = _record(calls, rng, want_lse, *given)
            return recorded if want_lse else (recorded, None)
    if forward_mode(given):
        refuse_forward_mode()
    function = _Transformed.apply if transformed() else forward_op
    given, options = complete(given), options_of(recipe)
    out, lse = function(*usable(turned(given) if heads_first else given), *options, rng)
    return as_pytorch_traced(given, options, out.transpose(1, 2)) if heads_first else out, lse


def _autocast(given: Tensors) -> Tensors:
    """`given` with q, k and v in the dtype of q's device's autocast."""
    if not isinstance(given[0], Tensor) or given[0].device.type not in DEVICES:
        return given
    device = given[0].device.type
    if not torch.is_autocast_enabled(device):
        return given
    dtype = torch.get_autocast_dtype(device)
    cast = (t if not isinstance(t, Tensor) or t.dtype is torch.float64 else t.to(dtype) for t in given[:3])
    return (*cast, *given[3:])
