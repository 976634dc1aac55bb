"""Calls of the library that make their results and share their structs.

A small call's time is mostly Python's. So the structs that `_call.Call` fills stay with the layouts and options that they
were filled for, and a later call alike in those only sets its addresses: half the time, and near what an extension module
would take (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any, Optional

import torch
from torch import Tensor

from ._call import CUDA, INPUT_NAMES, RESULT_NAMES, Call, Tensors, explain

_KERNEL_ALIGNMENT = 128  # bytes: no kernel gains by more
_NUMBERS = {int, float, bool, type(None)}
_MOST = 1024  # layouts that are kept, of some kB each


def innermost(tensor: Tensor) -> Tensor:
    """The tensor itself where its innermost dimension is contiguous, as the library wants it, else a copy."""
    if tensor.dim() == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)  # .contiguous() leaves strides of 0 to an empty tensor


def _broadcastable(tensor: Tensor) -> Tensor:
    """As `innermost`, for a tensor that may repeat along its innermost dimension."""
    return tensor if tensor.dim() == 0 or tensor.stride(-1) == 0 else innermost(tensor)


_COPIES = {"q": innermost, "k": innermost, "v": innermost, "bias": _broadcastable, "mask": _broadcastable,
           "dout": innermost, "dlse": innermost}
_GIVEN = (*INPUT_NAMES, *RESULT_NAMES["backward"][:4])


def usable(tensors: Tensors) -> tuple[Optional[Tensor], ...]:
    """The inputs, and backward's out, lse, dout and dlse if given; copies where the library could not read them."""
    for tensor, name in zip(tensors, _GIVEN):
        if tensor is not None and not isinstance(tensor, Tensor):
            explain(tensor, name)
    return tuple(tensor if tensor is None or name not in _COPIES else _COPIES[name](tensor)
                 for tensor, name in zip(tensors, _GIVEN))


class _Repeated(Call):
    """A call that makes its results, each like one of `examples`; of zeros where the library does not write all."""

    def __init__(self, name: str, given: Tensors, examples: Tensors, zeros: bool, options: tuple):
        super().__init__(name, given, examples, *options)
        self.new = torch.zeros_like if zeros else torch.empty_like
        self.examples = [_hollow(example) for example in examples]
        # On CUDA backward's workspace is PyTorch's memory (forward needs none; on the CPU the library has its own). How
        # much it is may depend on the addresses' alignment.
        self.workspaces: dict[int, Optional[Tensor]] = {}
        self.needs_workspace = name == "backward" and self.kind == CUDA

    def __call__(self, given: Tensors, rng: Optional[Tensor]) -> list[Any]:
        new = self.new
        made = [None if example is None else new(example) for example in self.examples]
        addresses = self.point(given, made)
        workspace = self.workspace_for(addresses % _KERNEL_ALIGNMENT) if self.needs_workspace else None
        if workspace is None:
            self.submit(rng)
        else:
            self.submit(rng, workspace.data_ptr(), workspace.numel())
        return made

    def workspace_for(self, alignment: int) -> Optional[Tensor]:
        if alignment not in self.workspaces:
            size = self.workspace()
            self.workspaces[alignment] = _hollow(torch.empty(size, dtype=torch.uint8, device=self.device) if size else None)
        example = self.workspaces[alignment]
        return None if example is None else torch.empty_like(example)


def _hollow(tensor: Optional[Tensor]) -> Optional[Tensor]:
    """The tensor without its memory, for empty_like: the fastest way to a new tensor that PyTorch has."""
    if tensor is not None:
        tensor.untyped_storage().resize_(0)
    return tensor


_idle: dict[str, dict[tuple, list[_Repeated]]] = {name: {} for name in RESULT_NAMES}


def run(name: str, given: Tensors, options: tuple, rng: Optional[Tensor], want_last: bool,
        make: Callable[..., tuple[Optional[Tensor], ...]]) -> list[Any]:
    """flashtile_forward or flashtile_backward of `given` and the options that Call takes. Returns its results, which are
    like those of `make(given, want_last)`, where the last is None if it is not wanted."""
    key = (want_last, options, *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in given])
    try:
        idle = _idle[name][key]
        call = idle.pop()  # a list's pop and append are atomic, so threads do not share a call
    except LookupError:
        ready = usable(given)
        if any(copy is not tensor for copy, tensor in zip(ready, given)):
            return run(name, ready, options, rng, want_last, make)
        try:
            call = _Repeated(name, given, make(given, want_last), given[6] is not None, options)
        except StructError as error:
            raise TypeError(f"an option has a value of a wrong type or size: {error}") from None
        idle = _place(name, key, options)
    try:
        return call(given, rng)
    finally:
        idle.append(call)


def _place(name: str, key: tuple, options: tuple) -> list[_Repeated]:
    """Where the calls of a key are kept; of options that compare by identity, or change, none are."""
    if not _NUMBERS.issuperset(map(type, options)):
        return []
    calls = _idle[name]
    if len(calls) >= _MOST:
        calls.clear()
    return calls.setdefault(key, [])
