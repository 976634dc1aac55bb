"""Partitioning over devices by sequences and heads, which computes on each device what is there: no keys are gathered.

The sharding rule tells XLA's partitioner (Shardy) which dimensions belong together; each device then makes the same
call on its part. What is summed over sequences or heads (keys' gradients where several heads read a key, those of a
bias that repeats, those of sinks) is summed over the devices too. Dropout draws by a head's and a sequence's number in
the whole, so each part says where it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax._src.dispatch import prim_requires_devices_during_lowering  # custom_partitioning adds its primitive to it
from jax.experimental.custom_partitioning import custom_partitioning
from jax.interpreters import mlir
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ._operands import Call, shapes_of_results

Handler = Callable[[Call], Callable[..., list[Any]]]
Axes = tuple[str, ...]  # of a mesh


class _Split(NamedTuple):
    """Over which axes of a mesh the sequences, the heads and the heads of keys are split. Where heads are and those of
    keys are not, the heads of a device read one head of keys."""

    sequences: Axes
    heads: Axes
    key_heads: Axes


class _Sizes(NamedTuple):
    """Of the whole: sequences, heads and heads of keys; 0 of what cannot be split."""

    sequences: int
    heads: int
    key_heads: int


def lower_partitioned(handler: Handler, context: Any, *operands: Any, call: Call) -> Any:
    """Lowers a call: to a custom call of `handler`, or where there are several devices to one that XLA partitions."""
    shapes = [aval.shape for aval in context.avals_in]
    results = [shape for shape, _ in shapes_of_results(call, call.given(context.avals_in))]
    sizes = _sizes(call, shapes)
    function = custom_partitioning(lambda *given: handler(call)(*given))
    rule, whole = _rule(call, sizes, shapes, results)
    function.def_partition(partial(_partition, handler, call, sizes), sharding_rule=rule,
                           need_replication_factors=whole)
    return mlir.lower_fun(function, multiple_results=True)(context, *operands)


def may_be_partitioned(primitive: Any) -> None:
    """Has JAX lower programs with this primitive for the devices that they run on."""
    prim_requires_devices_during_lowering.add(primitive)


def _sizes(call: Call, shapes: Sequence[tuple[int, ...]]) -> _Sizes:
    of = dict(zip(call.names, shapes))
    if call.appends:
        return _Sizes(0, 0, 0)
    splittable = "b" in call.dims("q") and "prefix_groups" not in call.names
    return _Sizes(of["q"][0] if splittable else 0, of["q"][-2], of["k"][-2])


def _own_dims(call: Call, name: str, rank: int) -> str:
    dims = call.dims(name)
    return dims[len(dims) - rank:].rjust(rank, "?")


def _kind(letter: str, size: int, sizes: _Sizes) -> str:
    """Which of _Sizes a dimension is, or ""."""
    kind = {"b": "sequences", "h": "heads", "g": "key_heads"}.get(letter.lower(), "")
    return kind if kind and size == getattr(sizes, kind) else ""


def _rule(call: Call, sizes: _Sizes, shapes: Sequence[tuple[int, ...]],
          results: Sequence[tuple[int, ...]]) -> tuple[str, tuple[str, ...]]:
    """The sharding rule, and its factors that are never split. Heads and heads of keys are the same factor where they
    are as many; else each is its own, since an axis of a mesh may split the one and not the other."""
    heads = "g" if sizes.heads == sizes.key_heads else "h"
    whole: list[str] = []

    def dimension(letter: str, size: int) -> str:
        kind = _kind(letter, size, sizes)
        if not kind or (kind == "key_heads" and sizes.key_heads == 1):
            whole.append(f"w{len(whole)}")
            return whole[-1]
        return {"sequences": "b", "heads": heads, "key_heads": "g"}[kind]

    def side(names: Sequence[str], of: Sequence[tuple[int, ...]]) -> str:
        return ", ".join(" ".join(map(dimension, _own_dims(call, name, len(shape)), shape))
                         for name, shape in zip(names, of, strict=True))

    return f"{side(call.names, shapes)} -> {side(call.results, results)}", tuple(whole)


def _partition(handler: Handler, call: Call, sizes: _Sizes, mesh: Mesh, operands: Sequence[Any],
               results: Sequence[Any]) -> tuple[Any, ...]:
    q = operands[call.names.index("q")]
    split = _split(mesh, q.sharding, _own_dims(call, "q", len(q.shape)), sizes)

    def placed(name: str, shape: tuple[int, ...]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*_spec(call, name, shape, sizes, split)))

    of_results = [placed(name, each.shape) for name, each in zip(call.results, results, strict=True)]
    of_operands = tuple(placed(name, each.shape) for name, each in zip(call.names, operands, strict=True))
    every = (*split.sequences, *split.heads)
    # Where the program's mesh has explicit axes, XLA would be told a sharding of what lies on one device.
    manual = AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Manual,) * len(mesh.axis_names))
    sums = [tuple(axis for axis in every if not any(axis in (axes or ()) for axes in each.spec))
            for each in of_results]

    def on_each(*parts: Any) -> list[Any]:
        with jax.sharding.use_abstract_mesh(manual):
            return of_part(*parts)

    def of_part(*parts: Any) -> list[Any]:
        one = sizes.key_heads > 1 and split.heads and not split.key_heads
        if one:
            at = jax.lax.axis_index(split.heads) * sizes.key_heads // _parts(mesh, split.heads)
            parts = tuple(jax.lax.dynamic_slice_in_dim(part, at, 1, -2) if name in ("k", "v") else part
                          for name, part in zip(call.names, parts))
        made = _call_part(handler, call, sizes, mesh, split, parts)
        if one:
            made = [_among(sizes.key_heads, part, at) if name in ("dk", "dv") else part
                    for name, part in zip(call.results, made)]
        return [_sum(part, axes) for part, axes in zip(made, sums)]

    return mesh, on_each, of_results, of_operands


def _split(mesh: Mesh, sharding: NamedSharding, dims: str, sizes: _Sizes) -> _Split:
    """How q's sharding splits the problem; of axes that do not divide it only the first ones count."""
    spec = dict(zip(dims, sharding.spec))

    def axes_of(letter: str) -> Axes:
        axes = spec.get(letter)
        return () if axes is None else axes if isinstance(axes, tuple) else (axes,)

    def dividing(axes: Axes, size: int) -> Axes:
        return max((axes[:n] for n in range(len(axes) + 1) if size and size % _parts(mesh, axes[:n]) == 0), key=len,
                   default=())

    heads = dividing(axes_of("h"), sizes.heads)
    key_heads = dividing(heads, sizes.key_heads)
    if key_heads != heads:
        if _parts(mesh, heads) % sizes.key_heads == 0:  # a device's heads read one key head, which it takes from all
            key_heads = ()
        else:
            heads = key_heads
    return _Split(dividing(axes_of("b"), sizes.sequences), heads, key_heads)


def _parts(mesh: Mesh, axes: Axes) -> int:
    return math.prod(mesh.shape[axis] for axis in axes)


def _spec(call: Call, name: str, shape: tuple[int, ...], sizes: _Sizes, split: _Split) -> list[Any]:
    kinds = map(partial(_kind, sizes=sizes), _own_dims(call, name, len(shape)), shape)
    return [getattr(split, kind) or None if kind else None for kind in kinds]


def _call_part(handler: Handler, call: Call, sizes: _Sizes, mesh: Mesh, split: _Split,
               parts: Sequence[Any]) -> Sequence[Any]:
    """The call on a device's part. Where a part begins is a number in the program, so there is a call a place."""
    of_b, of_h = _parts(mesh, split.sequences), _parts(mesh, split.heads)
    if not call.numbered or of_b == of_h == 1:
        return handler(call)(*parts)
    first = call.options
    places = [handler(call._replace(options=first._replace(origin_b=first.origin_b + b * (sizes.sequences // of_b),
                                                           origin_h=first.origin_h + h * (sizes.heads // of_h))))
              for b in range(of_b) for h in range(of_h)]
    at = jax.lax.axis_index((*split.sequences, *split.heads))
    return jax.lax.switch(at, places, *parts)


def _among(heads: int, part: Any, at: Any) -> Any:
    """The gradient of all heads of keys, which is 0 but of the one at `at`."""
    whole = jnp.zeros((*part.shape[:-2], heads, part.shape[-1]), part.dtype)
    return jax.lax.dynamic_update_slice_in_dim(whole, part, at, -2)


def _sum(part: Any, axes: Axes) -> Any:
    """The sum over devices, in fp32 as the library sums."""
    return jax.lax.psum(part.astype(jnp.float32), axes).astype(part.dtype) if axes else part
