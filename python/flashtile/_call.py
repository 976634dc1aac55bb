"""Torch tensors and options to one call of the C ABI (include/flashtile/flashtile.h), at little cost.

The structs of a call lie one after the other in one piece of memory: options, inputs, results, then a flashtile_tensor
for each argument. Calls that differ in addresses only may use them again (_run.py does), since filling them takes
longer than all the rest of a small call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ._arguments import blame_an_option
from ._library import InvalidArgument, fail, library
from ._structs import (
    CPU,
    CUDA,
    DTYPE_CODES,
    INPUT_NAMES,
    INPUTS,
    MAX_RANK,
    OPTIONS,
    RESULT_NAMES,
    SEEDS,
    STREAM,
    TENSOR_SIZE,
    TENSORS,
    THREADS,
    WORD,
    WORKSPACE,
)

DTYPES = {getattr(torch, name): code for name, code in DTYPE_CODES.items()}
DEVICES = {"cpu": CPU, "cuda": CUDA}

Tensors = Sequence[Any]  # None where one is absent
_PACK = [tensor.pack_into for tensor in TENSORS]

# Allowed of softcap beside 0, as the library has it.
LEAST_SOFTCAP = 1e-30

# A CPU call uses as many threads as PyTorch does, unless the user told flashtile otherwise.
_own_threads = "FLASHTILE_THREADS" in os.environ
_get_num_threads = torch.get_num_threads

_FLOATS = "torch.float32, torch.float16 or torch.bfloat16"
_LENGTHS = "torch.int32 or torch.int64"
_ALLOWED = {"alibi_slopes": "torch.float32", "mask": "torch.bool", "cu_seqlens_q": _LENGTHS, "cu_seqlens_k": _LENGTHS,
            "seqused_k": "torch.int32"}

_places: dict[torch.device, tuple[int, int]] = {}  # what device_of has answered


def explain(tensor: object, name: str) -> NoReturn:
    """Why something cannot become a flashtile_tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, allowed is a torch.Tensor") from None
    if tensor.device.type not in DEVICES:
        raise TypeError(f"{name} lies on {tensor.device}, allowed are cpu and cuda")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name}.dtype is {tensor.dtype}, allowed is {_ALLOWED.get(name, _FLOATS)}")
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
    return torch._C._cuda_getCurrentRawStream(index) if kind == CUDA else 0


class Call:
    """A call of the library with its structs filled: of `given`, the inputs (and backward's out, lse, dout and dlse),
    `made`, the other results, and the options. One thread at a time."""

    def __init__(self, name: str, given: Tensors, made: Tensors, max_seqlen_q: int, max_seqlen_k: int, causal: int,
                 alignment: int, scale: Optional[float], softcap: float, window_left: int, window_right: int,
                 dropout: float, deterministic: bool, batch_invariant: bool, exact_max: bool):
        self.function = getattr(library, "flashtile_" + name)
        self.workspace_function = getattr(library, f"flashtile_{name}_workspace")
        self.device = given[0].device
        self.kind, self.index = place = device_of(given[0], "q")
        self.dropout = dropout
        results = Struct(f"N{len(RESULT_NAMES[name])}P")
        inputs = OPTIONS.size
        outputs = inputs + INPUTS.size
        first = outputs + results.size
        names = (*INPUT_NAMES, *RESULT_NAMES[name])
        tensors = range(first, first + len(names) * TENSOR_SIZE, TENSOR_SIZE)
        memory = bytearray(tensors.stop)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        pointers = []
        for tensor, at, argument in zip((*given, *made), tensors, names, strict=True):
            if tensor is None:
                pointers.append(0)
                continue
            try:
                shape = tensor.shape
                _PACK[len(shape)](memory, at, tensor.data_ptr(), DTYPES[tensor.dtype],
                                  *(place if tensor.device == self.device else device_of(tensor, argument)),
                                  len(shape), *shape, *tensor.stride())
            except (AttributeError, KeyError, IndexError):
                explain(tensor, argument)
            pointers.append(base + at)
        if 0.0 < softcap < LEAST_SOFTCAP:  # in fp32 it may be 0, which is off
            raise InvalidArgument(f"softcap is {softcap:g}, allowed is 0 (off) or a number from {LEAST_SOFTCAP:g}")
        try:
            OPTIONS.pack_into(memory, 0, OPTIONS.size, causal, alignment, scale is not None, scale or 0.0, softcap,
                              window_left, window_right, dropout, 0, 0, 0, 0, deterministic, batch_invariant, 0, 0, 0,
                              0, 0, 0, 0, exact_max)
            INPUTS.pack_into(memory, inputs, INPUTS.size, *pointers[:len(INPUT_NAMES)], max_seqlen_q, max_seqlen_k)
        except StructError:
            blame_an_option(align="bottom-right", window=(window_left, window_right), scale=scale, softcap=softcap,
                            dropout_p=dropout, causal=bool(causal), deterministic=deterministic,
                            batch_invariant=batch_invariant, exact_max=exact_max, max_seqlen_q=max_seqlen_q,
                            max_seqlen_k=max_seqlen_k)
            raise
        results.pack_into(memory, outputs, results.size, *pointers[len(INPUT_NAMES):])
        self.arguments = (base, base + inputs, base + outputs)
        self.words, self.numbers = memoryview(memory).cast("Q"), memoryview(memory).cast("i")
        self.data = [at // WORD for at in tensors]  # the word of each tensor's address

    def workspace(self) -> int:
        """Bytes that the call uses beside its results."""
        size = ctypes.c_size_t()
        status = self.workspace_function(*self.arguments, ctypes.addressof(size))
        if status:
            fail(status)
        return size.value

    def submit(self, rng: Optional[Tensor] = None, workspace: Optional[Tensor] = None) -> None:
        """Calls the library. rng holds dropout's seed and offset."""
        words = self.words
        if rng is not None and self.dropout:
            words[SEEDS], words[SEEDS + 1] = seed_and_offset(rng, self.device)
        if self.kind == CUDA:
            words[STREAM] = stream_of(self.kind, self.index)
        elif not _own_threads:
            self.numbers[THREADS] = _get_num_threads()
        if workspace is not None:
            words[WORKSPACE], words[WORKSPACE + 1] = workspace.data_ptr(), workspace.numel()
        status = self.function(*self.arguments)
        if status:
            fail(status)


def dropout_mask(dropout: float, rng: Tensor, keep: Tensor) -> None:
    """Fills keep, bool (batch, heads, seqlen_q, seqlen_k), with the dropout mask of `rng`, which lies on its device."""
    place = device_of(keep, "keep")
    options = ctypes.create_string_buffer(OPTIONS.size)
    OPTIONS.pack_into(options, 0, OPTIONS.size, 0, 0, 0, 0.0, 0.0, -1, -1, dropout, 0, 0,
                      *seed_and_offset(rng, keep.device), 0, 0, 0, 0, 0, 0, stream_of(*place), 0, 0, 0)
    tensor = ctypes.create_string_buffer(TENSOR_SIZE)
    _PACK[4](tensor, 0, keep.data_ptr(), DTYPES[keep.dtype], *place, 4, *keep.shape, *keep.stride())
    status = library.flashtile_dropout_mask(ctypes.addressof(options), ctypes.addressof(tensor))
    if status:
        fail(status)
