"""flashtile for NumPy: attention and its gradients on arrays, on the CPU. Needs NumPy and nothing else.

    import flashtile.numpy as fn
    out, lse = fn.attention(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = fn.attention_backward(dout, q, k, v, out, lse, causal=True)
    fn.append_kv(k_cache, v_cache, k, v, cache_seqlens=lengths)
    out, lse = fn.merge(outs, lses)

Arrays are float32, float16 or bfloat16 (the package ml_dtypes has it), and of forward's q, k and v float8_e4m3fn (from
there too), of any strides; a copy is made where the innermost dimension is not contiguous. Options, shapes and results are those of `flashtile.attention`,
`flashtile.append_kv` and `flashtile.merge`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Optional, TypedDict, TypeVar, Union

import numpy as np

from ._append import TENSORS as APPENDED, Append, split
from ._block_lists import BlockLists, split_lists
from ._arguments import FLAGS, allowed_dtypes, blame_an_option, flag
from ._functions import Functions
from ._library import InvalidArgument, fail, library
from ._options import DEFAULTS, CallOptions, of_attention, split_shard
from ._scale_shape import check_block, scale_shape
from ._structs import (
    APPEND,
    APPEND_NAMES,
    CPU,
    DTYPE_CODES,
    INPUT_NAMES,
    MAX_RANK,
    MERGE,
    MERGE_NAMES,
    ONE_FOR_ALL,
    RESULT_NAMES,
    QUANTIZE,
    QUANTIZE_NAMES,
    RESULTS,
    SCALE_NAMES,
    SERVING_NAMES,
    SHARD_NAMES,
    Part,
    Structs,
    inputs_part,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ForwardOptions", "Options", "append_kv", "attention", "attention_backward", "dequantize", "merge", "quantize"]

Array = np.ndarray
Function = TypeVar("Function", bound=Callable)
_BROADCAST = ("bias", "mask")  # may repeat along the innermost dimension
_SIDE_BY_SIDE = tuple(of + name for of in ("", "append.") for name in ("slots", "positions", "positions_q"))  # rows
_PRESENT = ("q", "k", "v", "out", "lse", "dout", "append.k")


class Options(TypedDict, total=False):
    """What attention and attention_backward take by name. Their meaning and defaults are those of
    `flashtile.attention`; score and mask functions are texts, whose tensors are arrays; seed, two integers of 64 bits,
    is what dropout's mask is drawn from: the same for the same two."""

    causal: bool
    window: tuple[int, int]
    align: Literal["bottom-right", "top-left"]
    scale: Optional[float]
    softcap: float
    alibi_slopes: Optional[Array]
    bias: Optional[Array]
    mask: Union[None, Array, str]
    score: Optional[str]
    tensors: Optional[dict[str, Array]]
    block_lists: Optional[BlockLists]
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
    sinks: Optional[Array]
    attention_chunk: int
    num_splits: int
    sm_limit: int
    diagonal: Union[int, Array]
    origin: tuple[int, int, Union[int, Array], Union[int, Array]]


class ForwardOptions(Options, total=False):
    """What attention takes by name. append is a `flashtile.Append` of arrays."""

    block_table: Optional[Array]
    cache_batch_idx: Optional[Array]
    first_k: Optional[Array]
    seqused_q: Optional[Array]
    tree_mask: Optional[Array]
    positions: Optional[Array]
    prefix_groups: Optional[Array]
    prefix_lengths: Optional[Array]
    append: Optional[Append]
    q_scale: Optional[Array]
    k_scale: Optional[Array]
    v_scale: Optional[Array]
    scale_block: int
    out_dtype: Any


_DEFAULTS: dict[str, Any] = dict.fromkeys(Options.__annotations__) | DEFAULTS
FORWARD_DEFAULTS = {**_DEFAULTS, **dict.fromkeys((*SERVING_NAMES, "append", *SCALE_NAMES, "out_dtype")),
                    "scale_block": 0}
_ARRAYS = INPUT_NAMES[3:]  # the options that are arrays
NO_NUMBERS = {*_ARRAYS, *SERVING_NAMES, "append", "seed", "score", "tensors", "block_lists", *SCALE_NAMES, "scale_block",
              "out_dtype"}


def with_options(options: type, defaults: dict[str, Any]) -> Callable[[Function], Function]:
    """Has help() and inspect.signature show a function's options by name."""

    def show(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        named = {**inspect.get_annotations(Options), **inspect.get_annotations(options)}
        shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name],
                                   annotation=getattr(annotation, "__forward_arg__", annotation))
                 for name, annotation in named.items() if name in defaults]
        function.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
        return function

    return show


@with_options(ForwardOptions, FORWARD_DEFAULTS)
def attention(q: Array, k: Array, v: Array, *, return_lse: bool = False,
              **options: Unpack[ForwardOptions]) -> Union[Array, tuple[Array, Array]]:
    """Exact attention, softmax(mask(scale * q k^T + ...)) v, as `flashtile.attention` has it.

    Args:
        q: (batch, seqlen_q, heads, head_dim); k: (batch, seqlen_k, kv_heads, head_dim); v: (.., head_dim_v).
        return_lse: return lse too.
        options: see `ForwardOptions`.

    Returns:
        out, like q with v's head_dim; with return_lse (out, lse), lse float32.
    """
    return_lse = flag("return_lse", return_lse)
    chosen = chosen_options("attention", options, FORWARD_DEFAULTS)
    functions, named = _functions(chosen)
    append = chosen["append"]
    names = (*INPUT_NAMES, *SERVING_NAMES, *SCALE_NAMES)
    block = chosen["scale_block"]
    arrays = _readable({"q": q, "k": k, "v": v, **{name: chosen[name] for name in names[3:]}},
                       () if append is None else ("k", "v"))
    q, v = arrays["q"], arrays["v"]
    packed = arrays["cu_seqlens_q"] is not None
    if q.ndim < (3 if packed else 4) or v.ndim == 0:
        shape = lse_shape = q.shape  # the library says what is wrong
    else:
        shape = (*q.shape[:-1], v.shape[-1])
        lse_shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    # Rows of no sequence and past seqused_q are not written.
    new = np.zeros if packed or arrays["seqused_q"] is not None else np.empty
    dtype = chosen["out_dtype"]
    if dtype is None:
        dtype = _bfloat16() if q.dtype.name == "float8_e4m3fn" else q.dtype
    out, lse = new(shape, dtype), new(lse_shape, np.float32) if return_lse else None
    results = Part(RESULTS["forward"], RESULT_NAMES["forward"])
    everything = [*arrays.values(), out, lse]
    if append is None:
        _attend("forward", lambda of: (inputs_part(names, of, scale_block=block), results), [*everything, *named], chosen, functions)
    else:
        tensors, (begin, interleaved) = split(append)
        appended = _readable({f"append.{name}": array for name, array in zip(APPENDED, tensors)}, ("append.q_out",))
        _attend("forward", lambda of: (inputs_part(names, of, scale_block=block, append=APPEND), results, Part(
            APPEND, APPENDED, {"rotary_begin": begin, "rotary_interleaved": interleaved})),
                [*everything, *appended.values(), *named], chosen, functions)
    return (out, lse) if lse is not None else out


@with_options(Options, _DEFAULTS)
def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *,
                       dlse: Optional[Array] = None, return_dbias: bool = False, return_dsinks: bool = False,
                       return_dtensors: Sequence[str] = (), **options: Unpack[Options]) -> tuple[Array, ...]:
    """The gradients of q, k and v where that of out is dout, and that of lse dlse (None: zero).

    Args:
        out, lse: what `attention` returned, of the same arguments.
        return_dbias: return bias' gradient too, in bias' own shape.
        return_dsinks: return sinks' gradient too.
        return_dtensors: return the gradients of these of `tensors` too, in fp32.
        options: see `Options`.

    Returns:
        (dq, dk, dv), then dbias, dsinks and dtensors where they are wanted.
    """
    chosen = chosen_options("attention_backward", options, _DEFAULTS)
    functions, named = _functions(chosen)
    wanted = {"bias": flag("return_dbias", return_dbias), "sinks": flag("return_dsinks", return_dsinks)}
    for name, want in wanted.items():
        if want and chosen[name] is None:
            raise InvalidArgument(f"return_d{name} is True without {name}, allowed is False")
    dtensors = []
    if return_dtensors:
        of = dict(zip(functions.names if functions else (), named))
        for name in return_dtensors:
            if name not in of:
                raise InvalidArgument(f"return_dtensors has {name!r}, allowed are names of tensors: {', '.join(of)}")
            dtensors.append(np.empty(of[name].shape, np.float32))
        assert functions is not None
        functions = functions._replace(wanted=tuple(return_dtensors))
    arrays = _readable({"q": q, "k": k, "v": v, **{name: chosen[name] for name in _ARRAYS}, "out": out, "lse": lse,
                        "dout": dout, "dlse": dlse})
    new = np.empty if arrays["cu_seqlens_q"] is None else np.zeros
    made = [new(arrays[name].shape, arrays[name].dtype) for name in ("q", "k", "v")]
    made += [np.empty(arrays[name].shape, arrays[name].dtype) if want else None for name, want in wanted.items()]
    _attend("backward", lambda of: (inputs_part(INPUT_NAMES, of), Part(RESULTS["backward"], RESULT_NAMES["backward"])),
            [*arrays.values(), *made, *named, *dtensors], chosen, functions)
    return (*(array for array in made if array is not None), *dtensors)


def append_kv(k_cache: Array, v_cache: Optional[Array], k: Array, v: Optional[Array], *,
              cache_seqlens: Union[int, Array, None] = None, block_table: Optional[Array] = None,
              slots: Optional[Array] = None, cache_batch_idx: Optional[Array] = None,
              cu_seqlens_k_new: Optional[Array] = None, rotary_cos: Optional[Array] = None,
              rotary_sin: Optional[Array] = None, rotary_interleaved: bool = False, rotary_begin: int = 0,
              rotary_offsets: Optional[Array] = None, positions: Optional[Array] = None, q: Optional[Array] = None,
              q_out: Optional[Array] = None, cu_seqlens_q: Optional[Array] = None, positions_q: Optional[Array] = None,
              causal: bool = False, window: tuple[int, int] = (-1, -1), k_scale: Optional[Array] = None,
              v_scale: Optional[Array] = None, scale_block: int = 0) -> Optional[Array]:
    """Writes new keys and values into the caches, in place, as `flashtile.append_kv` does, and returns the rotated
    queries; None without q. The caches and q_out must be arrays that the library can write where they lie."""
    if isinstance(cache_seqlens, int) and isinstance(k, np.ndarray):
        batch = len(k) if cu_seqlens_k_new is None else len(cu_seqlens_k_new) - 1
        cache_seqlens = np.full(batch, cache_seqlens, np.int32)
    if isinstance(q, np.ndarray) and q_out is None:
        q_out = np.empty(q.shape, q.dtype)
    given = (k, v, k_cache, v_cache, block_table, slots, cache_batch_idx, cache_seqlens, cu_seqlens_k_new, rotary_cos,
             rotary_sin, rotary_offsets, positions, q, q_out, cu_seqlens_q, positions_q)
    names = (*APPEND_NAMES, *SCALE_NAMES[1:])
    arrays = _readable(dict(zip(names, (*given, k_scale, v_scale), strict=True)), ("k_cache", "v_cache", "q_out"),
                       ("k", "k_cache"))
    fields = {"rotary_begin": rotary_begin, "rotary_interleaved": flag("rotary_interleaved", rotary_interleaved),
              "scale_block": scale_block}
    one_position = not flag("causal", causal) and tuple(window) == (-1, -1)
    _call("append_kv", Structs((Part(APPEND, names, fields),), [*map(_fields, arrays.values())],
                               CallOptions(causal=0 if one_position else 1)))
    return q_out


def quantize(x: Array, *, block: int = 0, scale_heads: int = 0, hadamard: Optional[int] = None,
             scale: Optional[Array] = None, cu_seqlens: Optional[Array] = None, rotary_cos: Optional[Array] = None,
             rotary_sin: Optional[Array] = None, rotary_interleaved: bool = False, rotary_begin: int = 0,
             rotary_offsets: Optional[Array] = None, positions: Optional[Array] = None) -> tuple[Array, Array]:
    """An array as float8_e4m3fn (of the package ml_dtypes) and scales, as `flashtile.quantize` does."""
    from ml_dtypes import float8_e4m3fn

    given = scale is not None
    arrays = _readable({"x": x, "cu_seqlens": cu_seqlens, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin,
                        "rotary_offsets": rotary_offsets, "positions": positions}, present=("x",))
    x = arrays["x"]
    if scale is None:
        packed = None if cu_seqlens is None else len(cu_seqlens) - 1
        scale = np.empty(scale_shape(x, "x", packed, block, scale_heads), np.float32)
    quantized = np.zeros(x.shape, float8_e4m3fn)
    _quantized("quantize", {**arrays, "quantized": quantized, "scale": scale},
               {"scale_block": block, "scale_given": given, "rotary_begin": rotary_begin,
                "rotary_interleaved": flag("rotary_interleaved", rotary_interleaved)}, hadamard)
    return quantized, scale


def dequantize(quantized: Array, scale: Array, *, block: int = 0, hadamard: Optional[int] = None,
               cu_seqlens: Optional[Array] = None, dtype: Any = np.float32) -> Array:
    """What quantize's results stand for, as `flashtile.dequantize` has it."""
    arrays = _readable({"quantized": quantized, "scale": scale, "cu_seqlens": cu_seqlens},
                       present=("quantized", "scale"))
    check_block(quantized, "quantized", cu_seqlens is not None, block)
    x = np.zeros(arrays["quantized"].shape, dtype)
    _quantized("dequantize", {**arrays, "x": x}, {"scale_block": block}, hadamard)
    return x


def _quantized(function: str, arrays: dict[str, Optional[Array]], fields: dict[str, int],
               hadamard: Optional[int]) -> None:
    fields |= {"has_hadamard": hadamard is not None, "hadamard_seed": hadamard or 0}
    _call(function, Structs((Part(QUANTIZE, QUANTIZE_NAMES, fields),),
                            [_fields(arrays.get(name)) for name in QUANTIZE_NAMES], CallOptions()))


def merge(outs: Union[Array, Sequence[Array]], lses: Union[Array, Sequence[Array]], *,
          dtype: Any = None) -> tuple[Array, Array]:
    """Merges n partial results of attention by their lse, as `flashtile.merge` does: (out, lse)."""
    given = {name: np.stack(parts) if isinstance(parts, (list, tuple)) else parts
             for name, parts in (("outs", outs), ("lses", lses))}
    arrays = _readable(given, present=("outs", "lses"))
    out = np.empty(arrays["outs"].shape[1:], arrays["outs"].dtype if dtype is None else dtype)
    lse = np.empty(arrays["lses"].shape[1:], np.float32)
    _call("merge", Structs((Part(MERGE, MERGE_NAMES),), [*map(_fields, (*arrays.values(), out, lse))], CallOptions()))
    return out, lse


def chosen_options(function: str, options: Any, defaults: dict[str, Any], kind: Any = Array) -> dict[str, Any]:
    """Every option's value, and the arrays (`kind`) of SHARD_NAMES, which have 0 for a number."""
    for name in options:
        if name not in defaults:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    chosen = {**defaults, **options}
    diagonal, origin, each = chosen["diagonal"], chosen["origin"], ONE_FOR_ALL
    if isinstance(origin, (tuple, list)) and len(origin) == 4:  # else _attend says so
        diagonal, origin, each = split_shard(diagonal, origin, kind)
    return {**chosen, "diagonal": diagonal, "origin": origin, **dict(zip(SHARD_NAMES, each))}


def _functions(chosen: dict[str, Any]) -> tuple[Optional[Functions], Sequence[Array]]:
    """The functions among the options, and the arrays that they name; a mask function is no array among the options."""
    score, mask, named = chosen["score"], chosen["mask"], chosen["tensors"]
    lists = chosen["block_lists"]
    if score is named is lists is None and not isinstance(mask, str):
        return None, ()
    if score is not None and not isinstance(score, str):
        raise TypeError(f"score is a {type(score).__name__}, allowed is None or a text")
    if not isinstance(named, (dict, type(None))) or not all(isinstance(name, str) for name in named or ()):
        raise TypeError(f"tensors is {named!r}, allowed is a dict of names and arrays")
    of_lists, block_size = ({}, ()) if lists is None else split_lists(lists)
    given = {f"tensors.{name}": array for name, array in (named or {}).items()} | of_lists
    arrays = _readable(given, present=tuple(given))
    if isinstance(mask, str):
        chosen["mask"] = None
    return (Functions(score, mask if isinstance(mask, str) else None, tuple(named or ()), block_size),
            [*arrays.values()])


def _readable(given: dict[str, Any], written: Sequence[str] = (),
              present: Sequence[str] = _PRESENT) -> dict[str, Any]:
    """The arrays, with copies of what the library could not read: those whose innermost dimension is not contiguous, or
    whose strides are negative or no multiple of an element. Of those that are written no copy will do."""
    arrays = {}
    for name, array in given.items():
        if array is None and name not in present:
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
        rows = name not in _SIDE_BY_SIDE or array.flags.c_contiguous
        if name in written and not (fits and innermost and array.flags.writeable):
            raise InvalidArgument(f"{name} is an array that the library cannot write where it lies, allowed is a "
                                  "writeable one whose innermost dimension is contiguous and whose strides are "
                                  "multiples of an element")
        arrays[name] = array if fits and innermost and rows else np.array(array, order="C")
    return arrays


def _bfloat16() -> Any:
    from ml_dtypes import bfloat16  # float8_e4m3fn is that package's

    return bfloat16


def _refuse_dtype(name: str, array: Array) -> NoReturn:
    raise TypeError(f"{name}.dtype is {array.dtype}, allowed is {allowed_dtypes(name)}"
                    f"{'' if array.dtype.isnative else ', in native byte order'}")


def _fields(array: Optional[Array]) -> Optional[tuple]:
    """A flashtile_tensor's fields."""
    if array is None:
        return None
    return (array.ctypes.data, DTYPE_CODES[array.dtype.name], CPU, 0, array.ndim, *array.shape,
            *(step // array.itemsize for step in array.strides))


def _attend(name: str, parts: Callable[[CallOptions], Sequence[Part]], arrays: Sequence[Optional[Array]],
            chosen: dict[str, Any], functions: Optional[Functions]) -> None:
    """Calls flashtile_forward or flashtile_backward on structs of the parts, which `parts` makes of the options."""
    alone = {option: chosen[option] for option in chosen if option not in NO_NUMBERS}
    seed = chosen["seed"]
    try:
        options = of_attention(**{**alone, **{name: flag(name, alone[name]) for name in FLAGS}})
        first, second = seed if options.dropout else (0, 0)
        structs = Structs(parts(options), [*map(_fields, arrays)], options, functions, seed=first, offset=second)
    except (TypeError, ValueError, LookupError, OverflowError, StructError):
        blame_an_option(**alone)
        if alone["dropout_p"]:
            raise TypeError(f"seed is {seed!r}, allowed with dropout_p are two whole numbers from 0 to 2^64 - 1") \
                from None
        raise
    try:
        _call(name, structs)
    except InvalidArgument:
        blame_an_option(**alone)
        raise


def _call(name: str, structs: Structs) -> None:
    function = getattr(library, f"flashtile_{name}")
    status = function(*structs.addresses[:len(function.argtypes)])
    if status:
        fail(status)
