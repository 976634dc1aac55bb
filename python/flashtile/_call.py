"""Makes one call of the C ABI (include/flashtile/flashtile.h) from PyTorch tensors and options.

Filling a call's structs takes longer than all the rest of a small call, so _run.py and _one_call.py use them again for
calls that differ in addresses only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from struct import error as StructError
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ._arguments import allowed_dtypes, blame_a_call_option
from ._functions import Functions
from ._library import fail, library
from ._options import CallOptions
from ._structs import (
    CPU,
    CUDA,
    DTYPE_CODES,
    INPUT_NAMES,
    MAX_RANK,
    OPTIONS,
    RESULT_NAMES,
    RESULTS,
    TENSOR_SIZE,
    TENSORS,
    Part,
    Structs,
    inputs_part,
    pack_options,
)

DTYPES = {getattr(torch, name): code for name, code in DTYPE_CODES.items()}
E4M3 = torch.float8_e4m3fn
DEVICES = {"cpu": CPU, "cuda": CUDA}
ALLOCATING = {CUDA}  # where PyTorch allocates a call's workspace; on the CPU the library allocates its own

_ALIGNMENT = 16  # bytes: what kernel runs, and what it needs, never depends on more

Tensors = Sequence[Any]  # None where one is absent

# The offsets of the options that every call sets: in words of 8 bytes, that of threads in words of 4.
_WORD = 8
_SEED, _OFFSET, _STREAM, _WORKSPACE, _WORKSPACE_SIZE = (
    OPTIONS.offsets[name] // _WORD for name in ("seed_ptr", "offset_ptr", "stream", "workspace", "workspace_size"))
_THREADS = OPTIONS.offsets["threads"] // 4

# A call on the CPU uses as many threads as PyTorch does, unless the user has set flashtile's own number.
_own_threads = "FLASHTILE_THREADS" in os.environ
_get_num_threads = torch.get_num_threads

_places: dict[torch.device, tuple[int, int]] = {}  # device_of's earlier results


def explain(tensor: object, name: str) -> NoReturn:
    """Raises the reason why something cannot become a flashtile_tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, allowed is a torch.Tensor") from None
    if tensor.device.type not in DEVICES:
        raise TypeError(f"{name} lies on {tensor.device}, allowed are cpu and cuda")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name}.dtype is {tensor.dtype}, allowed is {allowed_dtypes(name, 'torch.')}")
    raise ValueError(f"{name} has {tensor.dim()} dimensions, allowed are at most {MAX_RANK}")


def device_of(tensor: Tensor, name: str) -> tuple[int, int]:
    """A tensor's device as the library has it: flashtile_device and the index."""
    device = tensor.device
    place = _places.get(device)
    if place is None:
        if device.type not in DEVICES:
            explain(tensor, name)
        place = _places[device] = DEVICES[device.type], device.index or 0
    return place


def seed_and_offset(rng: Tensor, device: torch.device) -> tuple[int, int]:
    """The addresses of dropout's seed and offset in rng. The library cannot check what lies at an address, so rng is
    checked here."""
    if rng.device != device or rng.dtype is not torch.int64 or rng.shape != (2,) or not rng.is_contiguous():
        raise TypeError(f"rng is {rng.dtype} {tuple(rng.shape)} on {rng.device}, allowed is torch.int64 (2,), "
                        f"contiguous, on q's device, {device}")
    address = rng.data_ptr()
    return address, address + 8


def hollow(tensor: Any) -> Any:
    """The tensor without its memory. empty_like of it is PyTorch's fastest way to allocate a tensor."""
    if tensor is not None:
        tensor.untyped_storage().resize_(0)
    return tensor


def stream_of(kind: int, index: int) -> int:
    """PyTorch's current stream of a device: flashtile_options.stream."""
    return torch._C._cuda_getCurrentRawStream(index) if kind == CUDA else 0


class FilledCall:
    """A call of flashtile_<function> with its structs filled. tensors: those of all parts in their order, and those of
    score and mask functions, with names for errors; the first is there, and a call runs on its device. Only one thread
    at a time may use it."""

    def __init__(self, function: str, parts: Sequence[Part], tensors: Tensors, names: Sequence[str],
                 options: CallOptions, functions: Optional[Functions] = None, **more_options: Any):
        self.function = getattr(library, "flashtile_" + function)
        self.workspace_function = getattr(library, f"flashtile_{function}_workspace", None)
        self.device = tensors[0].device
        self.kind, self.index = place = device_of(tensors[0], names[0])
        self.needs_workspace = self.kind in ALLOCATING and self.workspace_function is not None
        self.example_workspace: Optional[Tensor] = None  # for aligned addresses
        self.dropout = options.dropout
        filled: list[Optional[tuple]] = []
        for tensor, name in zip(tensors, names, strict=True):
            if tensor is None:
                filled.append(None)
                continue
            try:
                shape = tensor.shape
                if len(shape) > MAX_RANK:
                    explain(tensor, name)
                filled.append((tensor.data_ptr(), DTYPES[tensor.dtype],
                               *(place if tensor.device == self.device else device_of(tensor, name)), len(shape),
                               *shape, *tensor.stride()))
            except (AttributeError, KeyError):
                explain(tensor, name)
        try:
            structs = Structs(parts, filled, options, functions, **more_options)
        except StructError:
            blame_a_call_option(options)
            raise
        self.arguments = structs.addresses[:len(self.function.argtypes)]
        self.words, self.numbers = memoryview(structs.memory).cast("Q"), memoryview(structs.memory).cast("i")
        self.data = [at // _WORD for at in structs.places]  # of each tensor, the offset of its address in words
        self.rows = [word for tensor, word in zip(tensors, self.data)
                     if tensor is not None and tensor.is_floating_point()]

    def workspace(self) -> int:
        """The bytes of workspace that the call needs."""
        assert self.workspace_function is not None
        size = ctypes.c_size_t()
        status = self.workspace_function(*self.arguments, ctypes.addressof(size))
        if status:
            fail(status)
        return size.value

    def bring_workspace(self) -> Optional[Tensor]:
        """Sets the workspace, for calls on these addresses, and returns it: it has to live until the call."""
        words, addresses = self.words, 0
        for word in self.rows:
            addresses |= words[word]
        aligned = addresses % _ALIGNMENT == 0
        example = self.example_workspace if aligned else None
        if example is None:
            words[_WORKSPACE] = words[_WORKSPACE_SIZE] = 0  # an earlier call's memory may be one of these tensors' by now
            size = self.workspace()
            if size == 0:
                self.needs_workspace = not aligned  # and where other addresses do need one, the library has its own
                return None
            example = hollow(torch.empty(size, dtype=torch.uint8, device=self.device))
            if aligned:
                self.example_workspace = example
        workspace = torch.empty_like(example)
        words[_WORKSPACE], words[_WORKSPACE_SIZE] = workspace.data_ptr(), workspace.numel()
        return workspace

    def submit(self, rng: Optional[Tensor] = None) -> None:
        """Calls the library. rng holds dropout's seed and offset."""
        words = self.words
        if rng is not None and self.dropout:
            words[_SEED], words[_OFFSET] = seed_and_offset(rng, self.device)
        if self.kind == CUDA:
            words[_STREAM] = stream_of(self.kind, self.index)
        elif not _own_threads:
            self.numbers[_THREADS] = _get_num_threads()
        workspace = self.bring_workspace() if self.needs_workspace else None  # noqa: F841
        status = self.function(*self.arguments)
        if status:
            fail(status)


class Call(FilledCall):
    """A call of flashtile_forward or flashtile_backward (`name`).

    given: the inputs of INPUT_NAMES, and for backward out, lse, dout and dlse. made: the tensors that the call writes.
    """

    def __init__(self, name: str, given: Tensors, made: Tensors, options: CallOptions):
        parts = (inputs_part(INPUT_NAMES, options), Part(RESULTS[name], RESULT_NAMES[name]))
        super().__init__(name, parts, (*given, *made), (*INPUT_NAMES, *RESULT_NAMES[name]), options)


def dropout_mask(dropout: float, rng: Tensor, keep: Tensor) -> None:
    """Fills keep, bool (batch, heads, seqlen_q, seqlen_k), with the dropout mask of `rng`, which lies on its device."""
    place = device_of(keep, "keep")
    options = ctypes.create_string_buffer(OPTIONS.size)
    seed, offset = seed_and_offset(rng, keep.device)
    pack_options(options, 0, CallOptions(dropout=dropout), seed_ptr=seed, offset_ptr=offset, stream=stream_of(*place))
    tensor = ctypes.create_string_buffer(TENSOR_SIZE)
    TENSORS[4].pack_into(tensor, 0, keep.data_ptr(), DTYPES[keep.dtype], *place, 4, *keep.shape, *keep.stride())
    status = library.flashtile_dropout_mask(ctypes.addressof(options), ctypes.addressof(tensor))
    if status:
        fail(status)
