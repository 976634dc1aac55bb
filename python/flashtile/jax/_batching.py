"""vmap: one call for all examples where their sequences, or else their heads, can lie beside each other in one; else a
loop over the examples (jax.lax.map).

A loop is necessary where a sequence's or a head's number matters (dropout, functions), where sequences share a prefix
or append, and for operands that have neither dimension: lengths of packed sequences, pages that are not shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp

from ._operands import Call

_AXES = {"sequences": "bB", "heads": "hHg"}


def batch(bind: Callable[..., list[Any]], operands: Sequence[Any], axes: Sequence[Optional[int]], *,
          call: Call) -> tuple[list[Any], list[int]]:
    """The batching rule of both primitives."""
    count = next(operand.shape[axis] for operand, axis in zip(operands, axes) if axis is not None)
    batched = {name for name, axis in zip(call.names, axes) if axis is not None}
    letters = next((letters for letters in _AXES.values() if _can_fold(call, batched, letters)), None)
    if letters is None:
        return _loop(bind, operands, axes, call)
    wanted = {"bias"} if "dbias" in call.results else set()  # whose gradient each example has for itself
    sizes = dict(zip("bh", _sizes(call, operands, axes)))
    folded = [_fold(operand, axis, count, call.dims(name), letters, sizes, name in wanted)
              for name, operand, axis in zip(call.names, operands, axes)]
    made = bind(*folded, call=call)
    given = {name: (operand, axis) for name, operand, axis in zip(call.names, operands, axes)}
    unfolded = [_unfold(result, count, call.dims(name), letters) for name, result in zip(call.results, made)]
    if "dbias" in call.results:
        at = call.results.index("dbias")
        operand, axis = given["bias"]
        shape = [n for each, n in enumerate(operand.shape) if each != axis]
        unfolded[at] = _sum_to(unfolded[at], (count, *shape))
    return unfolded, [0] * len(unfolded)


def _can_fold(call: Call, batched: set[str], letters: str) -> bool:
    if call.numbered or call.appends or "prefix_groups" in call.names or "dsinks" in call.results and "b" in letters:
        return False
    return all(set(letters) & set(call.dims(name)) for name in batched | {"q"})


def _sizes(call: Call, operands: Sequence[Any], axes: Sequence[Optional[int]]) -> tuple[int, int]:
    """How many sequences and heads an example has. Of packed sequences only the heads matter."""
    at = call.names.index("q")
    shape = [n for each, n in enumerate(operands[at].shape) if each != axes[at]]
    return shape[0], shape[-2]


def _fold(operand: Any, axis: Optional[int], count: int, dims: str, letters: str, sizes: dict[str, int],
          apart: bool) -> Any:
    """The operand of the one call. apart: it is wanted for each example, though all have the same."""
    common = axis is None and not apart
    own = dims[len(dims) - operand.ndim + (axis is not None):]
    if not set(letters) & set(own):
        if common:
            return operand
        own = dims
    place = next(at for at, letter in enumerate(own) if letter in letters)
    if common and own[place].isupper() and operand.shape[place] == 1:
        return operand
    operand = jnp.broadcast_to(operand, (count, *operand.shape)) if axis is None else jnp.moveaxis(operand, axis, 0)
    operand = operand.reshape(count, *(1,) * (len(own) + 1 - operand.ndim), *operand.shape[1:])
    before, size, after = operand.shape[1:place + 1], operand.shape[place + 1], operand.shape[place + 2:]
    if size == 1:
        size = sizes.get(own[place].lower(), 1)
        operand = jnp.broadcast_to(operand, (count, *before, size, *after))
    return jnp.moveaxis(operand, 0, place).reshape(*before, count * size, *after)


def _unfold(result: Any, count: int, dims: str, letters: str) -> Any:
    """The results of each example, examples first."""
    own = dims[len(dims) - result.ndim:]
    place = next(at for at, letter in enumerate(own) if letter in letters)
    result = result.reshape(*result.shape[:place], count, result.shape[place] // count, *result.shape[place + 1:])
    return jnp.moveaxis(result, place, 0)


def _sum_to(gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of what was repeated: summed in fp32 as the library does it."""
    full = (shape[0], *(1,) * (gradient.ndim - len(shape)), *shape[1:])
    repeated = tuple(at for at, (n, own) in enumerate(zip(gradient.shape, full)) if n != own)
    if repeated:
        gradient = gradient.astype(jnp.float32).sum(repeated).astype(gradient.dtype)
    return gradient.reshape(shape)


def _loop(bind: Callable[..., list[Any]], operands: Sequence[Any], axes: Sequence[Optional[int]],
          call: Call) -> tuple[list[Any], list[int]]:
    moved = [jnp.moveaxis(operand, axis, 0) for operand, axis in zip(operands, axes) if axis is not None]

    def example(of_one: list[Any]) -> list[Any]:
        own = iter(of_one)
        return bind(*(operand if axis is None else next(own) for operand, axis in zip(operands, axes)), call=call)

    made = jax.lax.map(example, moved)
    return made, [0] * len(made)
