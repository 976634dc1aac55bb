"""Where a call's operands lie on a mesh while JAX traces: all of them vary over the same axes in a shard_map, and where
a mesh has explicit axes the results are placed as q is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from ._operands import Call


def in_one_place(function: Callable[..., Any], call: Call, operands: Sequence[Any]) -> Any:
    """function(*operands). Over what one operand alone does not vary, jax.lax.pcast makes it vary, whose derivative is
    the sum that belongs to it."""
    axes = frozenset().union(*map(_varies, operands))
    varying = [jax.lax.pcast(operand, missing, to="varying") if (missing := tuple(axes - _varies(operand))) else operand
               for operand in operands]
    q = jax.typeof(operands[call.names.index("q")])
    explicit = q.sharding.mesh.explicit_axes if not q.sharding.mesh.empty else ()
    if not explicit:
        return function(*varying)
    of_q = dict(zip(call.dims("q"), q.sharding.spec))
    specs = tuple(PartitionSpec(*(of_q.get(letter) if letter in "bh" else None for letter in call.dims(name)))
                  for name in call.results)
    return jax.sharding.auto_axes(lambda *given: tuple(function(*given)), axes=tuple(explicit),
                                  out_sharding=specs)(*varying)


def _varies(operand: Any) -> frozenset[str]:
    """The axes of a mesh over which it varies."""
    aval = jax.typeof(operand)
    return aval.mat.varying if hasattr(aval, "mat") else aval.vma  # before jax 0.10
