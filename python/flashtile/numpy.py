"""flashtile for NumPy: attention and its gradients on arrays, on the CPU. Needs NumPy and nothing else.

    import flashtile.numpy as fn
    out, lse = fn.attention(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = fn.attention_backward(dout, q, k, v, out, lse, causal=True)

Arrays are float32, float16 or bfloat16 (the package ml_dtypes has it), of any strides; a copy is made where the
innermost dimension is not contiguous. Options, shapes and results are those of `flashtile.attention`.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Optional, TypedDict, TypeVar, Union

import numpy as np

from ._arguments import FLAGS, blame_an_option, flag
from ._library import InvalidArgument, fail, library
from ._options import of_attention
from ._structs import (
    CPU,
    DTYPE_CODES,
    INPUT_NAMES,
    INPUTS,
    MAX_RANK,
    OPTIONS,
    RESULT_NAMES,
    RESULTS,
    TENSOR_SIZE,
    TENSORS,
    pack_inputs,
    pack_options,
    pack_results,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = np.ndarray
Function = TypeVar("Function", bound=Callable)
_BROADCAST = ("bias", "mask")  # may repeat along the innermost dimension


class Options(TypedDict, total=False):
    """What both functions take by name. Their meaning and defaults are those of `flashtile.attention`; seed, two
    integers of 64 bits, is what dropout's mask is drawn from: the same for the same two."""

    causal: bool
    window: tuple[int, int]
    align: Literal["bottom-right", "top-left"]
    scale: Optional[float]
    softcap: float
    alibi_slopes: Optional[Array]
    bias: Optional[Array]
    mask: Optional[Array]
    dropout_p: float
    seed: Optional[tuple[int, int]]
    deterministic: bool
    batch_invariant: bool
    exact_max: bool
    cu_seqlens_q: Optional[Array]
    cu_seqlens_k: Optional[Array]
    max_seqlen_q: Optional[int]
    max_seqlen_k: Optional[int]
    seqused_k: Optional[Array]


_DEFAULTS: dict[str, Any] = dict.fromkeys(Options.__annotations__) | {
    "causal": False, "window": (-1, -1), "align": "bottom-right", "softcap": 0.0, "dropout_p": 0.0,
    "deterministic": False, "batch_invariant": False, "exact_max": False}
_ARRAYS = INPUT_NAMES[3:]  # the options that are arrays


def _with_options(function: Function) -> Function:
    """Has help() and inspect.signature show the options by name."""
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name],
                                 annotation=getattr(annotation, "__forward_arg__", annotation))
               for name, annotation in inspect.get_annotations(Options).items()]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return function


@_with_options
def attention(q: Array, k: Array, v: Array, *, return_lse: bool = False,
              **options: Unpack[Options]) -> Union[Array, tuple[Array, Array]]:
    """Exact attention, softmax(mask(scale * q k^T + ...)) v, as `flashtile.attention` has it.

    Args:
        q: (batch, seqlen_q, heads, head_dim); k: (batch, seqlen_k, kv_heads, head_dim); v: (.., head_dim_v).
        return_lse: return lse too.
        options: see `Options`.

    Returns:
        out, like q with v's head_dim; with return_lse (out, lse), lse float32.
    """
    return_lse = flag("return_lse", return_lse)
    chosen = _chosen("attention", options)
    arrays = _readable({"q": q, "k": k, "v": v, **{name: chosen[name] for name in _ARRAYS}})
    q, v = arrays["q"], arrays["v"]
    packed = arrays["cu_seqlens_q"] is not None
    if q.ndim < (3 if packed else 4) or v.ndim == 0:
        shape = lse_shape = q.shape  # the library says what is wrong
    else:
        shape = (*q.shape[:-1], v.shape[-1])
        lse_shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    new = np.zeros if packed else np.empty  # packed rows of no sequence are not written
    out, lse = new(shape, q.dtype), new(lse_shape, np.float32) if return_lse else None
    _call("forward", arrays, {"out": out, "lse": lse}, chosen)
    return (out, lse) if lse is not None else out


@_with_options
def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *,
                       dlse: Optional[Array] = None, return_dbias: bool = False,
                       **options: Unpack[Options]) -> tuple[Array, ...]:
    """The gradients of q, k and v where that of out is dout, and that of lse dlse (None: zero).

    Args:
        out, lse: what `attention` returned, of the same arguments.
        return_dbias: return bias' gradient too, in bias' own shape.
        options: see `Options`.

    Returns:
        (dq, dk, dv), or (dq, dk, dv, dbias).
    """
    return_dbias = flag("return_dbias", return_dbias)
    chosen = _chosen("attention_backward", options)
    if return_dbias and chosen["bias"] is None:
        raise InvalidArgument("return_dbias is True without bias, allowed is False")
    arrays = _readable({"q": q, "k": k, "v": v, **{name: chosen[name] for name in _ARRAYS}, "out": out, "lse": lse,
                        "dout": dout, "dlse": dlse})
    new = np.empty if arrays["cu_seqlens_q"] is None else np.zeros
    made = {f"d{name}": new(arrays[name].shape, arrays[name].dtype) for name in ("q", "k", "v")}
    made["dbias"] = np.empty(arrays["bias"].shape, arrays["bias"].dtype) if return_dbias else None
    _call("backward", arrays, made, chosen)
    return tuple(array for array in made.values() if array is not None)


def _chosen(function: str, options: Any) -> dict[str, Any]:
    """Every option's value."""
    for name in options:
        if name not in _DEFAULTS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {**_DEFAULTS, **options}


def _readable(given: dict[str, Any]) -> dict[str, Any]:
    """The arrays, with copies of what the library could not read: those whose innermost dimension is not contiguous, or
    whose strides are negative or no multiple of an element."""
    arrays = {}
    for name, array in given.items():
        if array is None and name not in ("q", "k", "v", "out", "lse", "dout"):
            arrays[name] = None
            continue
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):  # whose mask would be lost
            raise TypeError(f"{name} is a {type(array).__name__}, allowed is a numpy.ndarray")
        if array.dtype.name not in DTYPE_CODES or not array.dtype.isnative:
            _refuse_dtype(name, array)
        if array.ndim > MAX_RANK:
            raise InvalidArgument(f"{name} has {array.ndim} dimensions, allowed are at most {MAX_RANK}")
        size = array.itemsize
        fits = array.flags.aligned and all(n == 1 or (step >= 0 and step % size == 0)
                                           for n, step in zip(array.shape, array.strides))
        innermost = array.ndim == 0 or array.shape[-1] <= 1 or array.strides[-1] == size or (
            name in _BROADCAST and array.strides[-1] == 0)
        arrays[name] = array if fits and innermost else np.array(array, order="C")
    return arrays


def _refuse_dtype(name: str, array: Array) -> NoReturn:
    allowed = {"alibi_slopes": "float32", "lse": "float32", "dlse": "float32", "mask": "bool", "seqused_k": "int32",
               "cu_seqlens_q": "int32 or int64", "cu_seqlens_k": "int32 or int64"}
    raise TypeError(f"{name}.dtype is {array.dtype}, allowed is {allowed.get(name, 'float32, float16 or bfloat16')}"
                    f"{'' if array.dtype.isnative else ', in native byte order'}")


def _call(name: str, arrays: dict[str, Any], made: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Calls flashtile_forward or flashtile_backward on the structs that it fills."""
    everything = {**arrays, **made}
    names = (*INPUT_NAMES, *RESULT_NAMES[name])
    memory = ctypes.create_string_buffer(TENSOR_SIZE * len(names))
    base, addresses = ctypes.addressof(memory), []
    for number, argument in enumerate(names):
        array = everything[argument]
        if array is None:
            addresses.append(0)
            continue
        at = number * TENSOR_SIZE
        strides = (step // array.itemsize for step in array.strides)
        TENSORS[array.ndim].pack_into(memory, at, array.ctypes.data, DTYPE_CODES[array.dtype.name], CPU, 0, array.ndim,
                                      *array.shape, *strides)
        addresses.append(base + at)
    options, inputs, results = (ctypes.create_string_buffer(layout.size) for layout in (OPTIONS, INPUTS, RESULTS[name]))
    alone = {option: chosen[option] for option in chosen if option not in _ARRAYS}
    seed = alone.pop("seed")
    try:
        call_options = of_attention(**{**alone, **{name: flag(name, alone[name]) for name in FLAGS}})
        first, second = seed if call_options.dropout else (0, 0)
        pack_options(options, 0, call_options, seed=first, offset=second)
        pack_inputs(inputs, 0, call_options, addresses[:len(INPUT_NAMES)])
    except (TypeError, ValueError, LookupError, OverflowError, StructError):
        blame_an_option(**alone)
        if alone["dropout_p"]:
            raise TypeError(f"seed is {seed!r}, allowed with dropout_p are two whole numbers from 0 to 2^64 - 1") \
                from None
        raise
    pack_results(results, 0, name, addresses[len(INPUT_NAMES):])
    status = getattr(library, f"flashtile_{name}")(options, inputs, results)
    if status:
        try:
            fail(status)
        except InvalidArgument:
            blame_an_option(**alone)
            raise
