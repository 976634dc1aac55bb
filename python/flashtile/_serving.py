"""What serving asks of attention: keys and values in a cache, chunked prefill, trees, shared prefixes, appending. One
call of flashtile_forward, without a gradient; flashtile.attention comes here where it gets one of these arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from ._append import TENSORS as APPENDED, Append, split
from ._call import E4M3, Tensors, explain
from ._define import writing_operator
from ._forward_mode import forward_mode, refuse_forward_mode
from ._functions import Functions
from ._one_call import Function, call
from ._ops import _is_grad_enabled, eager
from ._options import CallOptions, Recipe, options_of, schema
from ._run import COPIES, innermost, new_version
from ._structs import APPEND, INPUT_NAMES, RESULT_NAMES, RESULTS, SCALE_NAMES, SERVING_NAMES, Part, inputs_part
from ._while_tracing import run_between_graphs

_NAMES = (*INPUT_NAMES, *SERVING_NAMES)
_RESULTS = RESULT_NAMES["forward"]
_OF_APPEND = tuple(f"append.{name}" for name in APPENDED)
_INPUTS = (*_NAMES, *SCALE_NAMES)  # operators take no scales: what has some runs between a compiler's graphs
_GIVEN, _PRESENT = (*_INPUTS, *_OF_APPEND), ("q", "k", "v", "append.k")
_K, _V, _CU_SEQLENS_Q, _SEQUSED_Q = map(_NAMES.index, ("k", "v", "cu_seqlens_q", "seqused_q"))


class Scales(NamedTuple):
    """Of e4m3 tensors, in the order of SCALE_NAMES; and what goes with them."""

    q: Optional[Tensor] = None
    k: Optional[Tensor] = None
    v: Optional[Tensor] = None
    block: int = 0
    out_dtype: Optional[torch.dtype] = None


_NO_SCALES = Scales()


def _parts(options: CallOptions, block: int) -> Sequence[Part]:
    return inputs_part(_INPUTS, options, scale_block=block), Part(RESULTS["forward"], _RESULTS)


def _parts_and_append(options: CallOptions, block: int, begin: int, interleaved: bool) -> Sequence[Part]:
    return (inputs_part(_INPUTS, options, scale_block=block, append=APPEND), Part(RESULTS["forward"], _RESULTS),
            Part(APPEND, APPENDED, {"rotary_begin": begin, "rotary_interleaved": interleaved}))


_copies = {at: COPIES.get(name, innermost) for at, name in enumerate(_NAMES) if name != "sinks"}
_FORWARD = Function("forward", _parts, (*_INPUTS, *_RESULTS), _copies)
_APPENDING = Function("forward", _parts_and_append, (*_INPUTS, *_RESULTS, *_OF_APPEND),
                      {at: copy for at, copy in _copies.items() if at not in (_K, _V)} |
                      {len(_INPUTS) + len(_RESULTS) + at: innermost for at, name in enumerate(APPENDED)
                       if name != "q_out"})
_SIDE_BY_SIDE = tuple(map(APPENDED.index, ("slots", "positions", "positions_q")))  # rows, as the library wants them
_SLOTS, _POSITIONS, _POSITIONS_Q = _SIDE_BY_SIDE
_Q_OUT = APPENDED.index("q_out")


def _results(return_lse: bool, dtype: Optional[torch.dtype],
             tensors: Tensors) -> tuple[Callable[[Tensor], Tensor], Tensors]:
    """How results are made, and those of a call. dtype: of out; None: q's, and bf16 beside an e4m3 q."""
    q, _, v_cache = tensors[:3]
    # Rows that the library does not write, of no sequence or past seqused_q, are zero.
    zero = tensors[_CU_SEQLENS_Q] is not None or tensors[_SEQUSED_Q] is not None
    new = q.new_zeros if zero else q.new_empty
    *rows, heads, _ = q.shape
    if dtype is None and q.dtype is E4M3:
        dtype = torch.bfloat16
    out = new((*rows, heads, v_cache.shape[-1]), dtype=dtype)
    lse = new((*rows[:-1], heads, rows[-1]), dtype=torch.float32) if return_lse else None
    return torch.zeros_like if zero else torch.empty_like, (out, lse)


@lru_cache(maxsize=None)
def _made(appends: bool, return_lse: bool, dtype: Optional[torch.dtype]) -> Function:
    """The function with results that are made."""
    function = _APPENDING if appends else _FORWARD
    return function._replace(make=partial(_results, return_lse, dtype), made_at=len(_INPUTS))


def _append_and_attend(function: Function, tensors: tuple, appended: tuple, numbers: tuple[int, int, bool],
                       recipe: Recipe, named: tuple = ()) -> Tensors:
    """tensors: those before what is appended, which are the inputs, or these and the results; named: those of score and
    mask functions."""
    if not (appended[_SLOTS] is appended[_POSITIONS] is appended[_POSITIONS_Q] is None):
        appended = tuple(t.contiguous() if t is not None and at in _SIDE_BY_SIDE else t
                         for at, t in enumerate(appended))
    made = call(function, (*tensors, *appended, *named), recipe, numbers)
    new_version(tensors[_K], tensors[_V], appended[_Q_OUT])
    return made


def _serve_kernel(*arguments: Any) -> None:
    *options, out, lse = arguments[len(_NAMES):]
    call(_FORWARD, (*arguments[:len(_NAMES)], *_NO_SCALES[:3], out, lse), (CallOptions, *options), (0,))


def _append_kernel(*arguments: Any) -> None:
    after = len(_NAMES) + len(APPENDED)
    begin, interleaved, *options, out, lse = arguments[after:]
    _append_and_attend(_APPENDING, (*arguments[:len(_NAMES)], *_NO_SCALES[:3], out, lse),
                       arguments[len(_NAMES):after], (0, begin, interleaved), (CallOptions, *options))


def _arguments(names: Sequence[str], present: Sequence[str], prefix: str = "", **written: str) -> str:
    """Tensors as arguments of an operator. written: the marks of those that it writes."""
    return ", ".join("Tensor" + (f"({written[name]}!)" if name in written else "") +
                     ("" if name in present else "?") + f" {prefix}{name}" for name in names)


_OUTPUTS = "Tensor(a!) out, Tensor(b!)? lse"
serve_op = writing_operator("serve", f"({_arguments(_NAMES, _NAMES[:3])}, {schema()}, {_OUTPUTS}) -> ()", _serve_kernel)
append_op = writing_operator(
    "append_and_serve", f"({_arguments(_NAMES, _NAMES[:3], k='c', v='d')}, "
    f"{_arguments(APPENDED, ('k',), 'append_', q_out='e')}, SymInt rotary_begin, bool rotary_interleaved, {schema()}, "
    f"{_OUTPUTS}) -> ()", _append_kernel)


def serve(given: tuple[Optional[Tensor], ...], serving: tuple[Optional[Tensor], ...], append: Optional[Append],
          recipe: Recipe, return_lse: bool, functions: Optional[Functions] = None,
          named: tuple[Tensor, ...] = (), scales: Scales = _NO_SCALES) -> tuple[Tensor, Optional[Tensor]]:
    """`given` are the tensors of INPUT_NAMES, `serving` those of SERVING_NAMES, `named` those of the functions."""
    tensors = (*given, *serving, *scales[:3])
    appended: tuple = ()
    numbers: tuple[int, bool] = (0, False)
    if append is not None:
        appended, numbers = split(append)
    everything = (*tensors, *appended)
    plain = eager(everything)
    if not plain:
        for tensor, name in zip(everything, _GIVEN):
            if not isinstance(tensor, Tensor) and tensor is not None:
                explain(tensor, name)
        if forward_mode(everything):
            refuse_forward_mode()
    if _is_grad_enabled() and any(t is not None and t.requires_grad for t in everything):
        if any(t is not None and t.dtype is E4M3 for t in tensors[:3]):
            raise NotImplementedError("attention has no gradient of float8_e4m3fn: backward runs in bf16, on what "
                                      "flashtile.dequantize returns")
        named = [name for name, t in zip((*SERVING_NAMES, "append", "out_dtype"), (*serving, append, scales.out_dtype))
                 if t is not None]
        raise NotImplementedError(f"attention has no gradient with {', '.join(named) or 'a cache'}: call it under "
                                  "torch.no_grad()")
    q, k_cache, v_cache = tensors[:3]
    if q is None or k_cache is None or v_cache is None or (appended and appended[0] is None):
        explain(None, next(name for tensor, name in zip(everything, _GIVEN) if tensor is None and name in _PRESENT))
    if plain:
        function = _made(append is not None, return_lse, scales.out_dtype)
        if functions is not None:
            function = function._replace(functions=functions)
        if append is None:
            out, lse = call(function, (*tensors, *named), recipe, (scales.block,))
        else:
            out, lse = _append_and_attend(function, tensors, appended, (scales.block, *numbers), recipe, named)
    elif scales is not _NO_SCALES:
        raise NotImplementedError("float8_e4m3fn or out_dtype of a tensor subclass or under a transform: allowed are "
                                  "plain tensors")
    elif functions is not None:
        raise NotImplementedError("score and mask functions beside a cache, of a tensor subclass or for a tracer: "
                                  "allowed are plain tensors, outside of a trace")
    else:
        _, (out, lse) = _results(return_lse, None, tensors)
        if append is None:
            serve_op(*tensors[:len(_NAMES)], *options_of(recipe), out, lse)
        else:
            append_op(*tensors[:len(_NAMES)], *appended, *numbers, *options_of(recipe), out, lse)
    return out, lse


serve_without_operator = run_between_graphs(serve)  # with functions or scales
