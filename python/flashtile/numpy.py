"""flashtile for NumPy: attention and its gradients on arrays, on the CPU. Needs NumPy and nothing else.

    import flashtile.numpy as fn
    out, lse = fn.attention(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = fn.attention_backward(dout, q, k, v, out, lse, causal=True)

Arrays are float32, float16 or bfloat16 (the package ml_dtypes has it), of any strides; a copy is made where the
innermost dimension is not contiguous. Options, shapes and results are those of `flashtile.attention`.
"""

from __future__ import annotations

import ctypes
from struct import Struct
from struct import error as StructError
from typing import Any, Literal, NoReturn, Optional, Union

import numpy as np

from ._arguments import ALIGNMENTS, blame_an_option, flag
from ._library import InvalidArgument, fail, library
from ._structs import (
    CPU,
    DTYPE_CODES,
    INPUT_NAMES,
    INPUTS,
    MAX_RANK,
    OPTIONS,
    RESULT_NAMES,
    TENSOR_SIZE,
    TENSORS,
)

Array = np.ndarray
_BROADCAST = ("bias", "mask")  # may repeat along the innermost dimension


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: Literal["bottom-right", "top-left"] = "bottom-right",
    scale: Optional[float] = None,
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    bias: Optional[Array] = None,
    mask: Optional[Array] = None,
    dropout_p: float = 0.0,
    seed: Optional[tuple[int, int]] = None,
    batch_invariant: bool = False,
    cu_seqlens_q: Optional[Array] = None,
    cu_seqlens_k: Optional[Array] = None,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    seqused_k: Optional[Array] = None,
    return_lse: bool = False,
) -> Union[Array, tuple[Array, Array]]:
    """Exact attention, softmax(mask(scale * q k^T + ...)) v, as `flashtile.attention` has it.

    Args:
        q: (batch, seqlen_q, heads, head_dim); k: (batch, seqlen_k, kv_heads, head_dim); v: (.., head_dim_v).
        seed: two integers of 64 bits, from which dropout's mask is drawn: the same for the same two.
        the others: see `flashtile.attention`.

    Returns:
        out, like q with v's head_dim; with return_lse (out, lse), lse float32.
    """
    return_lse = flag("return_lse", return_lse)
    given = dict(q=q, k=k, v=v, alibi_slopes=alibi_slopes, bias=bias, mask=mask, cu_seqlens_q=cu_seqlens_q,
                 cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k)
    options = dict(causal=causal, window=window, align=align, scale=scale, softcap=softcap, dropout_p=dropout_p,
                   deterministic=False, batch_invariant=batch_invariant, max_seqlen_q=max_seqlen_q,
                   max_seqlen_k=max_seqlen_k)
    arrays = _readable(given)
    q, v = arrays["q"], arrays["v"]
    packed = arrays["cu_seqlens_q"] is not None
    if q.ndim < (3 if packed else 4) or v.ndim == 0:
        shape = lse_shape = q.shape  # the library says what is wrong
    else:
        shape = (*q.shape[:-1], v.shape[-1])
        lse_shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    new = np.zeros if packed else np.empty  # packed rows of no sequence are not written
    out, lse = new(shape, q.dtype), new(lse_shape, np.float32) if return_lse else None
    _call("forward", arrays, {"out": out, "lse": lse}, options, seed)
    return (out, lse) if lse is not None else out


def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    dlse: Optional[Array] = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: Literal["bottom-right", "top-left"] = "bottom-right",
    scale: Optional[float] = None,
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    bias: Optional[Array] = None,
    mask: Optional[Array] = None,
    dropout_p: float = 0.0,
    seed: Optional[tuple[int, int]] = None,
    deterministic: bool = False,
    batch_invariant: bool = False,
    cu_seqlens_q: Optional[Array] = None,
    cu_seqlens_k: Optional[Array] = None,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    seqused_k: Optional[Array] = None,
    return_dbias: bool = False,
) -> tuple[Array, ...]:
    """The gradients of q, k and v where that of out is dout, and that of lse dlse (None: zero).

    Args:
        out, lse: what `attention` returned, of the same arguments.
        return_dbias: return bias' gradient too, in bias' own shape.

    Returns:
        (dq, dk, dv), or (dq, dk, dv, dbias).
    """
    return_dbias = flag("return_dbias", return_dbias)
    given = dict(q=q, k=k, v=v, alibi_slopes=alibi_slopes, bias=bias, mask=mask, cu_seqlens_q=cu_seqlens_q,
                 cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k, out=out, lse=lse, dout=dout, dlse=dlse)
    options = dict(causal=causal, window=window, align=align, scale=scale, softcap=softcap, dropout_p=dropout_p,
                   deterministic=deterministic, batch_invariant=batch_invariant, max_seqlen_q=max_seqlen_q,
                   max_seqlen_k=max_seqlen_k)
    if return_dbias and bias is None:
        raise InvalidArgument("return_dbias is True without bias, allowed is False")
    arrays = _readable(given)
    new = np.empty if arrays["cu_seqlens_q"] is None else np.zeros
    made = {f"d{name}": new(arrays[name].shape, arrays[name].dtype) for name in ("q", "k", "v")}
    made["dbias"] = np.empty(arrays["bias"].shape, arrays["bias"].dtype) if return_dbias else None
    _call("backward", arrays, made, options, seed)
    return tuple(array for array in made.values() if array is not None)


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


def _call(name: str, arrays: dict[str, Any], made: dict[str, Any], options: dict[str, Any],
          seed: Optional[tuple[int, int]]) -> None:
    """Calls flashtile_forward or flashtile_backward on the structs that it fills."""
    try:
        packed_options = _packed(seed=seed, **options)
    except (TypeError, ValueError, LookupError, OverflowError, StructError):
        blame_an_option(**options)
        if options["dropout_p"]:
            raise TypeError(f"seed is {seed!r}, allowed with dropout_p are two whole numbers from 0 to 2^64 - 1") \
                from None
        raise
    everything = {**arrays, **made}
    names = (*INPUT_NAMES, *RESULT_NAMES[name])
    memory = ctypes.create_string_buffer(TENSOR_SIZE * len(names))
    base, pointers = ctypes.addressof(memory), []
    for number, argument in enumerate(names):
        array = everything[argument]
        if array is None:
            pointers.append(0)
            continue
        at = number * TENSOR_SIZE
        strides = (step // array.itemsize for step in array.strides)
        TENSORS[array.ndim].pack_into(memory, at, array.ctypes.data, DTYPE_CODES[array.dtype.name], CPU, 0, array.ndim,
                                      *array.shape, *strides)
        pointers.append(base + at)
    lengths = (-1 if options[longest] is None else options[longest] for longest in ("max_seqlen_q", "max_seqlen_k"))
    inputs = INPUTS.pack(INPUTS.size, *pointers[:len(INPUT_NAMES)], *lengths)
    results = Struct(f"N{len(RESULT_NAMES[name])}P")
    outputs = results.pack(results.size, *pointers[len(INPUT_NAMES):])
    status = getattr(library, f"flashtile_{name}")(packed_options, inputs, outputs)
    if status:
        try:
            fail(status)
        except InvalidArgument:
            blame_an_option(**options)
            raise


def _packed(causal: bool, window: tuple[int, int], align: str, scale: Optional[float], softcap: float, dropout_p: float,
            deterministic: bool, batch_invariant: bool, max_seqlen_q: Optional[int], max_seqlen_k: Optional[int],
            seed: Optional[tuple[int, int]]) -> bytes:
    """flashtile_options."""
    alignment = ALIGNMENTS[align]
    left, right = window
    first, second = seed if dropout_p else (0, 0)  # type: ignore[misc]
    Struct("2q").pack(max_seqlen_q or 0, max_seqlen_k or 0)  # in flashtile_inputs, and checked here with the others
    return OPTIONS.pack(OPTIONS.size, alignment + 1 if flag("causal", causal) else 0, alignment, scale is not None,
                        scale or 0.0, softcap, left, right, dropout_p, first, second, 0, 0, deterministic,
                        batch_invariant, 0, 0, 0, 0, 0, 0, 0, 0)
