"""Attention as two primitives of JAX's, flashtile_forward and flashtile_backward, whose operands and results are named
by a Call. Derivatives, vmap and partitioning are laid on them by the other files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla
from jax.sharding import PartitionSpec

from .._options import CallOptions
from .._structs import SERVING_NAMES
from . import _handlers
from ._batching import batch
from ._check import workspace_on_cuda
from ._operands import Call, shapes_of_results
from ._partitioning import lower_partitioned, may_be_partitioned

_DEFAULTS = CallOptions()._asdict()


def _abstract_eval(q: Any, *others: Any, call: Call) -> list[Any]:
    # Everything but shape and dtype is as it is of q: over which axes of a mesh shard_map has it vary, for one.
    return [q.update(shape=shape, dtype=dtype, weak_type=False,
                     sharding=q.sharding.update(spec=PartitionSpec(*(None,) * len(shape))))
            for shape, dtype in shapes_of_results(call, call.given((q, *others)))]


def _attributes(call: Call) -> dict[str, Any]:
    """The handler's attributes: src/xla/handlers.cpp."""
    given: dict[str, Any] = {name: value for name, value in call.options._asdict().items()
                             if value != _DEFAULTS[name]}
    if call.functions is not None:
        given |= {name: text for name, text in (("score_function", call.functions.score),
                                                ("mask_function", call.functions.mask)) if text is not None}
        given |= dict(zip(("block_lists.block_q", "block_lists.block_k"), call.functions.block_size))
    begin, interleaved = call.rotary
    given |= {name: value for name, value in (("append.rotary_begin", begin),
                                              ("append.rotary_interleaved", interleaved)) if value}
    floats = ("scale", "softcap", "dropout")
    return {name: value if isinstance(value, str) else np.float64(value) if name in floats else np.int64(value)
            for name, value in given.items()}


def call_handler(call: Call, platform: str, *operands: Any) -> list[Any]:
    """The results of a custom call."""
    results = [jax.ShapeDtypeStruct(*each) for each in shapes_of_results(call, call.given(operands))]
    names = list(call.results)
    if platform == "cuda" and (size := workspace_on_cuda(call, operands)):
        names.append("workspace")
        results.append(jax.ShapeDtypeStruct((size,), np.uint8))
    # Results that start as zeros, and caches that are written, are operands too: XLA gives both the same memory.
    aliases = {at: names.index(name.removeprefix("zero.")) for at, name in enumerate(call.names)
               if name.removeprefix("zero.") in names and not name.startswith("tensors.")
               and not (call.backward and not name.startswith("zero."))}
    function = jax.ffi.ffi_call(_handlers.target("backward" if call.backward else "forward"), results,
                                input_output_aliases=aliases)
    made = function(*operands, operands=" ".join(call.names), results=" ".join(names), **_attributes(call))
    return list(made[:len(call.results)])


def _refuse_derivative(primals: Any, tangents: Any, *, call: Call) -> Any:
    serving = [name for name in call.names if name in SERVING_NAMES or name.startswith("append.")]
    if serving:
        raise NotImplementedError(f"flashtile has no gradient with {', '.join(serving)}: allowed is a call outside of "
                                  "what is differentiated, or jax.lax.stop_gradient on its arguments")
    raise NotImplementedError("flashtile has no gradients of gradients and no forward-mode derivatives: allowed is "
                              "jax.grad or jax.vjp, once")


def _refuse_platform(context: Any, *operands: Any, call: Call) -> Any:
    platforms = getattr(context, "platforms", None) or context.module_context.platforms
    raise NotImplementedError(f"flashtile has nothing for JAX's platform {', '.join(platforms)}, allowed are cpu and "
                              "cuda")


def _primitive(name: str) -> Callable[..., list[Any]]:
    primitive = Primitive("flashtile_" + name)
    primitive.multiple_results = True
    primitive.def_impl(partial(xla.apply_primitive, primitive))
    primitive.def_abstract_eval(_abstract_eval)
    ad.primitive_jvps[primitive] = _refuse_derivative
    bind = primitive.bind
    batching.primitive_batchers[primitive] = partial(batch, bind)
    may_be_partitioned(primitive)
    mlir.register_lowering(primitive, _refuse_platform)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, partial(lower_partitioned, partial(_handler_of, platform)), platform=platform)
    return bind


def _handler_of(platform: str, call: Call) -> Callable[..., list[Any]]:
    return partial(call_handler, call, platform)


forward, backward = map(_primitive, _handlers.PASSES)
