"""Makes one call of the C ABI (include/flashtile/flashtile.h) from PyTorch tensors and options.

The structs of a call lie one after the other in one piece of memory: options, inputs, results, then a flashtile_tensor
for each argument. Filling them takes longer than all the rest of a small call, so _run.py uses them again for calls
that differ in addresses only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from struct import error as StructError
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from ._arguments import blame_a_call_option
from ._library import fail, library
from ._options import CallOptions
from ._structs import (
    CPU,
    CUDA,
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

DTYPES = {getattr(torch, name): code for name, code in DTYPE_CODES.items()}
DEVICES = {"cpu": CPU, "cuda": CUDA}

Tensors = Sequence[Any]  # None where one is absent
_PACK = [tensor.pack_into for tensor in TENSORS]

# The offsets of the options that every call sets: in words of 8 bytes, that of threads in words of 4.
_WORD = 8
_SEED, _OFFSET, _STREAM, _WORKSPACE, _WORKSPACE_SIZE = (
    OPTIONS.offsets[name] // _WORD for name in ("seed_ptr", "offset_ptr", "stream", "workspace", "workspace_size"))
_THREADS = OPTIONS.offsets["threads"] // 4

# A call on the CPU uses as many threads as PyTorch does, unless the user has set flashtile's own number.
_own_threads = "FLASHTILE_THREADS" in os.environ
_get_num_threads = torch.get_num_threads

_FLOATS = "torch.float32, torch.float16 or torch.bfloat16"
_LENGTHS = "torch.int32 or torch.int64"
_ALLOWED = {"alibi_slopes": "torch.float32", "mask": "torch.bool", "cu_seqlens_q": _LENGTHS, "cu_seqlens_k": _LENGTHS,
            "seqused_k": "torch.int32", "block_table": "torch.int32", "slots": "torch.int64",
            **dict.fromkeys(("cache_seqlens", "cache_batch_idx", "rotary_offsets", "positions", "positions_q",
                             "cu_seqlens_k_new"), _LENGTHS)}

_places: dict[torch.device, tuple[int, int]] = {}  # device_of's earlier results


def explain(tensor: object, name: str) -> NoReturn:
    """Raises the reason why something cannot become a flashtile_tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, allowed is a torch.Tensor") from None
    if tensor.device.type not in DEVICES:
        raise TypeError(f"{name} lies on {tensor.device}, allowed are cpu and cuda")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name}.dtype is {tensor.dtype}, allowed is {_ALLOWED.get(name, _FLOATS)}")
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


def stream_of(kind: int, index: int) -> int:
    """PyTorch's current stream of a device: flashtile_options.stream."""
    return torch._C._cuda_getCurrentRawStream(index) if kind == CUDA else 0


class Call:
    """A call of flashtile_forward or flashtile_backward (`name`) with its structs filled.

    given: the inputs of INPUT_NAMES, and for backward out, lse, dout and dlse. made: the tensors that the call writes.
    Only one thread at a time may use it.
    """

    def __init__(self, name: str, given: Tensors, made: Tensors, options: CallOptions):
        self.function = getattr(library, "flashtile_" + name)
        self.workspace_function = getattr(library, f"flashtile_{name}_workspace")
        self.device = given[0].device
        self.kind, self.index = place = device_of(given[0], "q")
        self.dropout = options.dropout
        inputs = OPTIONS.size
        outputs = inputs + INPUTS.size
        first = outputs + RESULTS[name].size
        names = (*INPUT_NAMES, *RESULT_NAMES[name])
        tensors = range(first, first + len(names) * TENSOR_SIZE, TENSOR_SIZE)
        memory = bytearray(tensors.stop)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        addresses = []
        for tensor, at, argument in zip((*given, *made), tensors, names, strict=True):
            if tensor is None:
                addresses.append(0)
                continue
            try:
                shape = tensor.shape
                _PACK[len(shape)](memory, at, tensor.data_ptr(), DTYPES[tensor.dtype],
                                  *(place if tensor.device == self.device else device_of(tensor, argument)),
                                  len(shape), *shape, *tensor.stride())
            except (AttributeError, KeyError, IndexError):
                explain(tensor, argument)
            addresses.append(base + at)
        try:
            pack_options(memory, 0, options)
            pack_inputs(memory, inputs, options, addresses[:len(INPUT_NAMES)])
        except StructError:
            blame_a_call_option(options)
            raise
        pack_results(memory, outputs, name, addresses[len(INPUT_NAMES):])
        self.arguments = (base, base + inputs, base + outputs)
        self.words, self.numbers = memoryview(memory).cast("Q"), memoryview(memory).cast("i")
        self.data = [at // _WORD for at in tensors]  # of each tensor, the offset of its address in words

    def workspace(self) -> int:
        """The bytes of workspace that the call needs."""
        size = ctypes.c_size_t()
        status = self.workspace_function(*self.arguments, ctypes.addressof(size))
        if status:
            fail(status)
        return size.value

    def submit(self, rng: Optional[Tensor] = None, workspace: Optional[Tensor] = None) -> None:
        """Calls the library. rng holds dropout's seed and offset."""
        words = self.words
        if rng is not None and self.dropout:
            words[_SEED], words[_OFFSET] = seed_and_offset(rng, self.device)
        if self.kind == CUDA:
            words[_STREAM] = stream_of(self.kind, self.index)
        elif not _own_threads:
            self.numbers[_THREADS] = _get_num_threads()
        if workspace is not None:
            words[_WORKSPACE], words[_WORKSPACE_SIZE] = workspace.data_ptr(), workspace.numel()
        status = self.function(*self.arguments)
        if status:
            fail(status)


def dropout_mask(dropout: float, rng: Tensor, keep: Tensor) -> None:
    """Fills keep, bool (batch, heads, seqlen_q, seqlen_k), with the dropout mask of `rng`, which lies on its device."""
    place = device_of(keep, "keep")
    options = ctypes.create_string_buffer(OPTIONS.size)
    seed, offset = seed_and_offset(rng, keep.device)
    pack_options(options, 0, CallOptions(dropout=dropout), seed_ptr=seed, offset_ptr=offset, stream=stream_of(*place))
    tensor = ctypes.create_string_buffer(TENSOR_SIZE)
    _PACK[4](tensor, 0, keep.data_ptr(), DTYPES[keep.dtype], *place, 4, *keep.shape, *keep.stride())
    status = library.flashtile_dropout_mask(ctypes.addressof(options), ctypes.addressof(tensor))
    if status:
        fail(status)
