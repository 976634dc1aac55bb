"""Attention's derivative: a custom_vjp whose residuals are the operands, out and lse."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ._check import check
from ._operands import Call
from ._primitives import backward, forward

_ALWAYS = ("q", "k", "v")
_WHERE_WANTED = ("bias", "sinks")


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(call: Call, *operands: Any) -> tuple[Any, Any]:
    """(out, lse)."""
    out, lse = forward(*operands, call=call)
    return out, lse


def _forward(call: Call, *operands: Any) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    given = tuple(operand.value for operand in operands)
    # Which gradients are wanted is the residuals' structure, since they are arrays otherwise.
    wanted = {name: () for name, operand in zip(call.names, operands)
              if operand.perturbed and (name in _WHERE_WANTED or name.startswith("tensors."))}
    out, lse = forward(*given, call=call)
    return (out, lse), (given, out, lse, wanted)


def _backward(call: Call, residuals: tuple[Any, ...], cotangents: tuple[Any, Any]) -> tuple[Any, ...]:
    given, out, lse, wanted = residuals
    dout, dlse = cotangents
    operands = {name: operand for name, operand in call.given(given).items() if not name.startswith("zero.")}
    operands |= {"out": out, "lse": lse, "dout": jnp.zeros_like(out) if isinstance(dout, SymbolicZero) else dout}
    if not isinstance(dlse, SymbolicZero):
        operands["dlse"] = dlse
    functions = call.functions
    if functions is not None:
        functions = functions._replace(wanted=tuple(name for name in functions.names if f"tensors.{name}" in wanted))
    gradient_of = {f"d{name}": name for name in (*_ALWAYS, *_WHERE_WANTED) if name in _ALWAYS or name in wanted}
    gradient_of |= {f"tensors.{name}": f"tensors.{name}" for name in (functions.wanted if functions else ())}
    if "cu_seqlens_q" in operands:  # rows of nobody are not written
        operands |= {f"zero.d{name}": jnp.zeros_like(operands[name]) for name in _ALWAYS}
    gradients = Call(tuple(operands), tuple(gradient_of), call.options, functions)
    check(gradients, tuple(operands.values()))
    made = dict(zip(gradient_of.values(), backward(*operands.values(), call=gradients), strict=True))
    return tuple(made[name].astype(operand.dtype) if name in made else None
                 for name, operand in zip(call.names, given))


attend.defvjp(_forward, _backward, symbolic_zeros=True)
