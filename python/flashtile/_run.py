"""Calls of the library that allocate their results and use filled structs again.

Most of a small call's time is spent in Python, and most of that in filling the structs. So `Calls` keeps the structs,
found by the tensors' layouts and the options. A later call with the same layouts and options only sets addresses
(docs/performance/python.md has figures).
"""

from __future__ import annotations

from struct import error as StructError
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import profiler as _profiler

from ._call import DTYPES, INPUT_NAMES, RESULT_NAMES, Call, Tensors, device_of, explain, hollow
from ._options import CallOptions, Recipe, options_of
from ._prepare import ALIGNED, Problem, prepare_aside
from ._sdpa_layout import sdpa_gradients, sdpa_results
from ._structs import MAX_RANK, SHARD_NAMES

_NAMES = (*INPUT_NAMES, *RESULT_NAMES["backward"][:4])  # what forward reads, and what backward reads
_HAVE_GRADIENTS = (INPUT_NAMES.index("bias"), INPUT_NAMES.index("sinks"))  # beside q, k and v
ABSENT = (None,) * (len(INPUT_NAMES) - 3)  # the inputs after q, k and v
NUMBERS = {int, float, bool, type(None)}
_MOST = 1024  # how many are kept; each takes some kB


def complete(given: Tensors) -> Tensors:
    """`given` with every input. Where the others are absent, callers give q, k and v alone."""
    return given if len(given) >= len(INPUT_NAMES) else (*given[:3], *ABSENT, *given[3:])


def innermost(tensor: Tensor) -> Tensor:
    """The tensor itself where its innermost dimension is contiguous, as the library requires; else a copy."""
    if tensor.dim() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)  # .contiguous() leaves strides of 0 to an empty tensor


def _broadcastable(tensor: Tensor) -> Tensor:
    """As `innermost`, for a tensor that the library lets repeat along its innermost dimension (stride 0)."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 0 else innermost(tensor)


COPIES = {"q": innermost, "k": innermost, "v": innermost, "bias": _broadcastable, "mask": _broadcastable,
           "dout": innermost, "dlse": innermost, **dict.fromkeys(SHARD_NAMES, innermost)}


def usable(given: Tensors) -> Tensors:
    """`given`, which is complete, with copies of the tensors that the library cannot read."""
    for tensor, name in zip(given, _NAMES):
        if tensor is not None and not isinstance(tensor, Tensor):
            explain(tensor, name)
    return tuple(tensor if tensor is None or name not in COPIES else COPIES[name](tensor)
                 for tensor, name in zip(given, _NAMES))


_ROWS = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"}  # have four dimensions where nothing is packed


def turned(tensors: Tensors, names: tuple[str, ...] = _NAMES) -> Tensors:
    """The tensors with heads and seqlen exchanged: from (batch, heads, seqlen, head_dim) to (batch, seqlen, heads,
    head_dim), or back."""
    return tuple(tensor.transpose(1, 2) if tensor is not None and name in _ROWS else tensor
                 for tensor, name in zip(tensors, names))


_increment_version = torch.autograd.graph.increment_version


def new_version(*written: Optional[Tensor]) -> None:
    """Tells autograd, which may have saved these tensors, that they have changed."""
    for tensor in written:
        if tensor is not None and not tensor.is_inference():
            _increment_version(tensor)


def results(given: Tensors, want_lse: bool = True) -> Tensors:
    """Empty out and lse. In packed batches they are zero instead, since the library does not write the rows that belong
    to no sequence. The same holds for dq, dk and dv."""
    q, _, v, _, _, _, cu_seqlens_q, *_ = given
    packed = cu_seqlens_q is not None
    new = q.new_zeros if packed else q.new_empty
    shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    return new((*q.shape[:-1], v.shape[-1])), new(shape, dtype=torch.float32) if want_lse else None


def gradients(given: Tensors, want: tuple[bool, bool]) -> Tensors:
    """Empty dq, dk, dv, dbias and dsinks. want: whether the last two are wanted."""
    q, k, v, _, bias, _, cu_seqlens_q, _, _, sinks, *_ = given
    new = torch.empty_like if cu_seqlens_q is None else torch.zeros_like
    return new(q), new(k), new(v), *(torch.empty(of.shape, dtype=of.dtype, device=of.device) if wanted else None
                                     for of, wanted in zip((bias, sinks), want))


class Calls:
    """All calls of flashtile_forward or flashtile_backward that differ in addresses, stream and threads only.
    heads_first: q, k, v, out and their gradients are (batch, heads, seqlen, head_dim)."""

    def __init__(self, name: str, given: Tensors, options: CallOptions, want_last: Any, heads_first: bool):
        self.name, self.options, self.want_last, self.heads_first = name, options, want_last, heads_first
        given = complete(given)
        self.copies = any(copy is not tensor for copy, tensor in zip(usable(given), given))
        self.meta = given[0].is_meta  # tensors without memory: nothing can be run
        self.idle: list[_Repeated] = []
        self.of_gradients: dict[tuple, Calls] = {}
        self.backward_foreseen = given[0].device.type != "cuda"  # where nothing is compiled

    def foresee_backward(self, given: Tensors) -> None:
        """While the first call compiles forward's kernels, backward's are compiled beside it."""
        self.backward_foreseen = True
        given = complete(given)
        beside = any(given[n] is not None and given[n].requires_grad for n in _HAVE_GRADIENTS)
        given = usable(given)
        if not all(tensor is None or (tensor.dtype in DTYPES and tensor.dim() <= MAX_RANK) for tensor in given):
            return  # the call itself says what is wrong
        if self.heads_first:
            given = turned(given)
        layouts = [None if tensor is None else (ALIGNED, DTYPES[tensor.dtype], *device_of(tensor, name), tensor.dim(),
                                                *tensor.shape, *tensor.stride())
                   for tensor, name in zip(given, INPUT_NAMES)]
        prepare_aside(Problem(layouts, self.options, forward=False, backward=True, lse=True, beside=beside))

    def run(self, given: Tensors, rng: Optional[Tensor]) -> list[Any]:
        """Makes a call and returns its results: out and lse, or dq, dk, dv, dbias and dsinks."""
        if self.copies:
            given = usable(complete(given))
        try:
            call = self.idle.pop()  # a list's pop and append are atomic, so threads do not share a call
        except IndexError:
            call = _Repeated(self.name, given, self.options, self.want_last, self.heads_first)
        try:
            if _profiler._is_profiler_enabled:
                with _profiler.record_function("flashtile_" + self.name):
                    return call.run(given, rng)
            return call.run(given, rng)
        finally:
            self.idle.append(call)

    def backward(self, given: Tensors, want: tuple[bool, bool]) -> Calls:
        """The calls of flashtile_backward for these calls of flashtile_forward. Their tensors are those of forward, and
        gradients that autograd has checked, so that only strides may differ from call to call. want: see gradients."""
        key = (want, *[None if tensor is None else tensor.stride() for tensor in given])
        try:
            return self.of_gradients[key]
        except KeyError:
            calls = Calls("backward", given, self.options, want, self.heads_first)
            return kept(self.of_gradients, key, calls)


_calls: dict[tuple, Calls] = {}


def calls_of(name: str, given: Tensors, recipe: Recipe, want_last: Any, heads_first: bool = False) -> Calls:
    """The calls of a function on tensors that are laid out as `given`, with a recipe's options. want_last: whether lse
    is wanted, or whether dbias and dsinks are."""
    key: tuple
    try:
        if len(given) == 3:  # the usual case, written out since that takes a third less time
            q, k, v = given
            key = (name, want_last, heads_first, recipe, q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(),
                   k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device)
        else:
            key = (name, want_last, heads_first, recipe,
                   *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in given])
        return _calls[key]
    except AttributeError:
        explain(*next((t, name) for t, name in zip(given, _NAMES) if not isinstance(t, Tensor)))
    except KeyError:
        options = options_of(recipe)
        calls = Calls(name, given, options, want_last, heads_first)
        # An option of another type may change its value and still be equal to itself: a tensor, for one.
        if NUMBERS.issuperset(map(type, options)):
            return kept(_calls, key, calls)
        calls.backward_foreseen = True  # these are not kept, and the next ones are not the first
        return calls


def kept(where: dict[tuple, Any], key: tuple, calls: Any) -> Any:
    if len(where) >= _MOST:
        where.clear()
    where[key] = calls
    return calls


class _Repeated(Call):
    """A call that allocates its results each time."""

    def __init__(self, name: str, given: Tensors, options: CallOptions, want_last: Any, heads_first: bool):
        inputs = complete(given)
        if heads_first:
            made = (sdpa_results if name == "forward" else sdpa_gradients)(inputs, options, want_last)
            inputs = turned(inputs)
            rows = turned(made, ("out", "lse") if name == "forward" else RESULT_NAMES["backward"][4:])
        else:
            rows = made = (results if name == "forward" else gradients)(inputs, want_last)
        try:
            super().__init__(name, inputs, rows, options)
        except StructError as error:
            raise TypeError(f"an option has a value of a wrong type or size: {error}") from None
        if len(given) < len(inputs):
            del self.data[3:len(INPUT_NAMES)]
        self.new = torch.empty_like if inputs[6] is None else torch.zeros_like
        self.examples = [hollow(tensor) for tensor in made]
        self.present = [(at, word) for at, (tensor, word) in enumerate(zip([*given, *made], self.data))
                        if tensor is not None]

    def run(self, given: Tensors, rng: Optional[Tensor]) -> list[Any]:
        new = self.new
        made = [None if example is None else new(example) for example in self.examples]
        words, tensors = self.words, [*given, *made]
        for at, word in self.present:
            words[word] = tensors[at].data_ptr()
        self.submit(rng)
        return made
