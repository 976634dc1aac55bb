"""Torch tensors and options to one call of the C ABI (include/flashtile/flashtile.h), at little cost.

The structs of a call lie one after the other in one piece of memory that calls use again: options, inputs, results,
then a flashtile_tensor for each argument. tests/test_abi.py holds the layouts to those of a C compiler.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NoReturn

import torch
from torch import Tensor

from ._library import fail, library

MAX_RANK = 6
DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.bool: 5, torch.int32: 6, torch.int64: 7}
DEVICES = {"cpu": 1, "cuda": 2}

OPTIONS = Struct("N3i2fqqd2Q2P5i3PN")
OPTION_FIELDS = ("size", "causal", "alignment", "has_scale", "scale", "softcap", "window_left", "window_right",
                 "dropout", "seed", "offset", "seed_ptr", "offset_ptr", "deterministic", "batch_invariant",
                 "check_values", "threads", "isa", "executor", "stream", "workspace", "workspace_size")
WORKSPACE = Struct("PN")  # the options' last two fields
INPUTS = Struct("N9P2q")
INPUT_NAMES = ("q", "k", "v", "alibi_slopes", "bias", "mask", "cu_seqlens_q", "cu_seqlens_k", "seqused_k")
RESULT_NAMES = {"forward": ("out", "lse"),
                "backward": ("out", "lse", "dout", "dlse", "dq", "dk", "dv", "dbias")}
# A flashtile_tensor by its rank: what lies past the rank is never read.
TENSORS = [Struct(f"P4i{rank}q{8 * (MAX_RANK - rank)}x{rank}q{8 * (MAX_RANK - rank)}x") for rank in range(MAX_RANK + 1)]
_PACK = [tensor.pack_into for tensor in TENSORS]
TENSOR_SIZE = TENSORS[0].size

# A CPU call uses as many threads as PyTorch does, unless the user told flashtile otherwise.
_own_threads = "FLASHTILE_THREADS" in os.environ


_places: dict[torch.device, tuple[int, int]] = {}  # what device_of has answered


def explain(tensor: object, name: str) -> NoReturn:
    """Why something cannot become a flashtile_tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.device.type not in DEVICES:
        raise TypeError(f"{name} lies on {tensor.device}, allowed are cpu and cuda")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name}.dtype is {tensor.dtype}, which flashtile does not have")
    raise ValueError(f"{name} has {tensor.dim()} dimensions, allowed are at most {MAX_RANK}")


def device_of(tensor: Tensor, name: str) -> tuple[int, int]:
    """flashtile_device and the index of a tensor's device."""
    device = tensor.device
    place = _places.get(device)
    if place is None:
        if device.type not in DEVICES:
            explain(tensor, name)
        place = _places[device] = DEVICES[device.type], device.index or 0
    return place


def seed_and_offset(rng: Tensor, device: torch.device) -> tuple[int, int]:
    """Where they lie. The library gets bare addresses and cannot see whose they are."""
    if rng.device != device or rng.dtype is not torch.int64 or rng.shape != (2,) or not rng.is_contiguous():
        raise TypeError(f"rng is {rng.dtype} {tuple(rng.shape)} on {rng.device}, allowed is torch.int64 (2,), "
                        f"contiguous, on q's device, {device}")
    address = rng.data_ptr()
    return address, address + 8


def stream_of(kind: int, index: int) -> int:
    """PyTorch's current stream of a device: flashtile_options.stream."""
    return torch._C._cuda_getCurrentRawStream(index) if kind == DEVICES["cuda"] else 0


class Call:
    """A function of the library with the memory of its structs. Calls that run at once need one each: see `run`."""

    def __init__(self, name: str):
        self.function = getattr(library, "flashtile_" + name)
        self.workspace_function = getattr(library, f"flashtile_{name}_workspace")
        results = RESULT_NAMES[name]
        self.backward = name == "backward"
        self.names = (*INPUT_NAMES, *results)
        self.results = Struct(f"N{len(results)}P")
        inputs = OPTIONS.size
        outputs = inputs + INPUTS.size
        first = outputs + self.results.size
        self.tensors = range(first, first + len(self.names) * TENSOR_SIZE, TENSOR_SIZE)
        self.memory = bytearray(self.tensors.stop)  # packing into a ctypes buffer takes twice as long
        self.exported = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.base = ctypes.addressof(self.exported)
        self.arguments = (self.base, self.base + inputs, self.base + outputs)

    def fill(self, tensors: Sequence[Tensor | None], max_seqlen_q: int, max_seqlen_k: int, causal: int, alignment: int,
             scale: float | None, softcap: float, window_left: int, window_right: int, dropout: float,
             deterministic: bool, batch_invariant: bool, rng: Tensor | None) -> torch.device:
        """Writes the structs, which hold until the next fill. `tensors` are the inputs and the results in the ABI's
        order; rng holds dropout's seed and offset. Returns q's device."""
        memory, base = self.memory, self.base
        q = tensors[0]
        if not isinstance(q, Tensor):
            explain(q, "q")
        device = q.device
        kind, index = place = device_of(q, "q")
        pointers = []
        for tensor, at, name in zip(tensors, self.tensors, self.names):
            if tensor is None:
                pointers.append(0)
                continue
            try:
                shape = tensor.shape
                rank = len(shape)
                _PACK[rank](memory, at, tensor.data_ptr(), DTYPES[tensor.dtype],
                            *(place if tensor.device == device else device_of(tensor, name)), rank, *shape,
                            *tensor.stride())
            except (AttributeError, KeyError, IndexError):
                explain(tensor, name)
            pointers.append(base + at)
        seed = offset = threads = 0
        if rng is not None and dropout:
            seed, offset = seed_and_offset(rng, device)
        stream = stream_of(kind, index)
        if kind == DEVICES["cpu"] and not _own_threads:
            threads = torch.get_num_threads()
        OPTIONS.pack_into(memory, 0, OPTIONS.size, causal, alignment, scale is not None, scale or 0.0, softcap,
                          window_left, window_right, dropout, 0, 0, seed, offset, deterministic, batch_invariant, 0,
                          threads, 0, 0, stream, 0, 0)
        INPUTS.pack_into(memory, OPTIONS.size, INPUTS.size, *pointers[:9], max_seqlen_q, max_seqlen_k)
        self.results.pack_into(memory, OPTIONS.size + INPUTS.size, self.results.size, *pointers[9:])
        return device

    def workspace(self) -> int:
        """Bytes that the call uses beside its results."""
        size = ctypes.c_size_t()
        status = self.workspace_function(*self.arguments, ctypes.addressof(size))
        if status:
            fail(status)
        return size.value

    def submit(self) -> None:
        """Calls the library with what `fill` wrote."""
        status = self.function(*self.arguments)
        if status:
            fail(status)

    def __call__(self, *arguments) -> None:
        """fill and submit; backward on CUDA with a workspace from PyTorch's allocator. (Forward needs none there.)"""
        device = self.fill(*arguments)
        if self.backward and device.type == "cuda" and (size := self.workspace()):
            workspace = torch.empty(size, dtype=torch.uint8, device=device)
            WORKSPACE.pack_into(self.memory, OPTIONS.size - WORKSPACE.size, workspace.data_ptr(), size)
        self.submit()


_free: dict[str, list[Call]] = {name: [] for name in RESULT_NAMES}


def run(name: str, tensors: Sequence[Tensor | None], *options) -> None:
    """flashtile_forward or flashtile_backward of what `Call.fill` takes."""
    free = _free[name]
    try:
        call = free.pop()  # a list's pop and append are atomic, so threads do not share a call
    except IndexError:
        call = Call(name)
    try:
        call(tensors, *options)
    except StructError as error:
        raise TypeError(f"an option has a value of a wrong type or size: {error}") from None
    finally:
        free.append(call)


def dropout_mask(dropout: float, rng: Tensor, keep: Tensor) -> None:
    """Fills keep, bool (batch, heads, seqlen_q, seqlen_k), with the dropout mask of `rng`, which lies on its device."""
    place = device_of(keep, "keep")
    options = ctypes.create_string_buffer(OPTIONS.size)
    OPTIONS.pack_into(options, 0, OPTIONS.size, 0, 0, 0, 0.0, 0.0, -1, -1, dropout, 0, 0,
                      *seed_and_offset(rng, keep.device), 0, 0, 0, 0, 0, 0, stream_of(*place), 0, 0)
    tensor = ctypes.create_string_buffer(TENSOR_SIZE)
    _PACK[4](tensor, 0, keep.data_ptr(), DTYPES[keep.dtype], *place, 4, *keep.shape, *keep.stride())
    status = library.flashtile_dropout_mask(ctypes.addressof(options), ctypes.addressof(tensor))
    if status:
        fail(status)
