"""flashtile.jax.attention: the function for JAX's arrays."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np

from .._append import TENSORS as APPENDED, split
from .._arguments import FLAGS, blame_an_option, flag
from .._block_lists import split_lists
from .._functions import Functions
from .._library import InvalidArgument
from .._options import CallOptions, of_attention
from .._structs import INPUT_NAMES, SERVING_NAMES
from ..numpy import FORWARD_DEFAULTS, NO_NUMBERS, ForwardOptions, chosen_options, with_options
from ._check import PAIRS, check, check_tensor
from ._differentiate import attend
from ._operands import Call
from ._place import in_one_place
from ._primitives import forward
from ._random import words_of

Array = jax.Array
_DEFAULTS = {name: default for name, default in FORWARD_DEFAULTS.items() if name != "seed"}
_TENSORS = (*INPUT_NAMES, *SERVING_NAMES)


@with_options(ForwardOptions, _DEFAULTS)
def attention(q: Array, k: Array, v: Array, *, key: Optional[Array] = None, seed: Optional[Array] = None,
              offset: Optional[Array] = None, return_lse: bool = False, **options: Any) -> Any:
    """Exact attention, softmax(mask(scale * q k^T + ...)) v, as `flashtile.attention` has it, for JAX's arrays.

    Differentiable in q, k, v, bias, sinks and the floats among tensors, and through lse, by jax.grad and jax.vjp, once.
    Under jax.vmap the examples become one call where they can. Under jax.jit with sharded arrays each device computes
    its sequences and heads.

    Args:
        q: (batch, seqlen_q, heads, head_dim), float32, float16 or bfloat16; k: (batch, seqlen_k, kv_heads, head_dim);
            v: (.., head_dim_v).
        key: what dropout's mask is drawn from: a key of jax.random's. Its first two words are seed; the third, where
            there is one (rbg), is offset.
        seed, offset: uint32 (2) each, low word first, in place of key: the mask is that of flashtile.numpy.attention
            with the two numbers. offset is 0 if None.
        return_lse: return lse too.
        options: those of `flashtile.attention`, which `help` lists. All that are not arrays must be known while JAX
            traces. Score and mask functions are texts. diagonal, i and j of origin, and append's slots may be int32 in
            place of int64. With append, whose q_out must be None, nothing is written in place: the caches are returned,
            and take no copy where the arguments are donated.

    Returns:
        out, like q with v's head_dim; or a tuple of out, lse where return_lse is set, float32 (batch, heads, seqlen_q)
        or packed (heads, total_q), and k and v where append is given.

    Raises:
        ValueError, TypeError: while JAX traces, where an argument is wrong: the message names it, its value and what is
            allowed. NotImplementedError: a derivative or platform that there is none for. Values that are wrong, such
            as cumulative lengths that descend, are errors of the running program, on the CPU only.
    """
    for name, value in (*options.items(), ("return_lse", return_lse)):
        if isinstance(value, jax.core.Tracer) and name not in (*_TENSORS, "diagonal"):
            raise TypeError(f"{name} is {value!r}, allowed is what is known while JAX traces (jax.jit's "
                            "static_argnames)")
    return_lse = flag("return_lse", return_lse)
    chosen = chosen_options("attention", options, _DEFAULTS, (jax.Array, np.ndarray))
    functions, named = _functions(chosen)
    append = chosen["append"]
    arrays = {"q": q, "k": k, "v": v, **{name: chosen[name] for name in _TENSORS[3:]}}
    rotary = (0, False)
    if append is not None:
        appended, rotary = split(append)
        if append.q_out is not None:
            raise TypeError("append.q_out is given, allowed is None: JAX's arrays are not written")
        arrays |= {f"append.{name}": array for name, array in zip(APPENDED, appended)}
    present = ("q", "k", "v", *(("append.k",) if append is not None else ()))
    operands = {name: _operand(name, array) for name, array in arrays.items() if array is not None or name in present}
    operands |= {name: _operand(name, array) for name, array in named.items()}
    call_options = _options(chosen)
    operands |= words_of(call_options.dropout, key, seed, offset)
    if "cu_seqlens_q" in operands or "seqused_q" in operands:  # rows of nobody are not written
        operands |= _zeros(operands, "cu_seqlens_q" in operands)
    results = ("out", "lse", *(("k", "v") if append is not None else ()))
    call = Call(tuple(operands), results, call_options, functions, rotary)
    given = tuple(operands.values())
    check(call, given)
    serving = append is not None or any(name in operands for name in SERVING_NAMES) or (
        "cu_seqlens_q" in operands and "cu_seqlens_k" not in operands)
    if serving and call_options.dropout:
        raise NotImplementedError("dropout_p is given with a cache or another argument of serving: allowed is 0")
    out, lse, *caches = in_one_place(partial(forward, call=call) if serving else partial(attend, call), call, given)
    made = (out, *((lse,) if return_lse else ()), *caches)
    return made if len(made) > 1 else out


def _operand(name: str, array: Any) -> Array:
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{name} is a {type(array).__name__}, allowed is a jax.Array")
    if name in PAIRS and array.dtype == np.int64 and isinstance(array, np.ndarray):
        return jnp.asarray(np.ascontiguousarray(array)[..., None].view(np.int32))  # jnp.asarray alone may drop the high words
    array = jnp.asarray(array)
    if name in PAIRS:
        return _words(name, array)
    check_tensor(name, array)
    return array.reshape(1) if array.ndim == 0 else array


def _words(name: str, array: Array) -> Array:
    """Elements of 64 bits as two words each, low word first, since JAX has no int64 unless it is switched on."""
    if array.dtype == jnp.int64:
        return jax.lax.bitcast_convert_type(array, jnp.int32)
    if array.dtype != jnp.int32:
        raise TypeError(f"{name}.dtype is {array.dtype}, allowed is int32 or int64")
    return jnp.stack((array, array >> 31), -1)


def _functions(chosen: dict[str, Any]) -> tuple[Optional[Functions], dict[str, Any]]:
    """The functions among the options, the tensors that they name, and those of lists of blocks."""
    score, mask, named = chosen["score"], chosen["mask"], chosen["tensors"]
    for name, given in (("score", score), ("mask", None if isinstance(mask, (jax.Array, np.ndarray)) else mask)):
        if not isinstance(given, (str, type(None))):
            allowed = "None or a text" if name == "score" else "None, a jax.Array or a text"
            raise TypeError(f"{name} is a {type(given).__name__}, allowed is {allowed}")
    if not isinstance(named, (dict, type(None))) or not all(isinstance(name, str) for name in named or ()):
        raise TypeError(f"tensors is {named!r}, allowed is a dict of names and arrays")
    lists = chosen["block_lists"]
    if score is named is lists is None and not isinstance(mask, str):
        return None, {}
    of_lists, block_size = ({}, ()) if lists is None else split_lists(lists)
    if isinstance(mask, str):
        chosen["mask"] = None
    return (Functions(score, mask if isinstance(mask, str) else None, tuple(named or ()), block_size),
            {f"tensors.{name}": array for name, array in (named or {}).items()} | of_lists)


def _options(chosen: dict[str, Any]) -> CallOptions:
    alone = {option: value for option, value in chosen.items() if option not in NO_NUMBERS}
    try:
        options = of_attention(**{**alone, **{name: flag(name, alone[name]) for name in FLAGS}})
        hash(options)
        if not 0.0 <= options.dropout < 1.0:
            raise InvalidArgument
    except (TypeError, ValueError, LookupError, OverflowError):
        blame_an_option(**alone)
        raise
    return options


def _zeros(operands: dict[str, Array], packed: bool) -> dict[str, Array]:
    q, v = operands["q"], operands["v"]
    if q.ndim != (3 if packed else 4) or v.ndim == 0:
        return {}  # the check says so
    *rows, heads, _ = q.shape
    return {"zero.out": jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype),
            "zero.lse": jnp.zeros((*rows[:-1], heads, rows[-1]), jnp.float32)}
