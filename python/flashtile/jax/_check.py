"""Asks the library, while a call is traced, whether its arguments are right: flashtile_can_run reads shapes, dtypes and
options, and no memory. Its errors name the argument, its value and what is allowed."""

from __future__ import annotations

import ctypes
from itertools import accumulate
from struct import error as StructError
from typing import Any, Optional

from .._append import TENSORS as APPENDED
from .._arguments import allowed_dtypes, blame_a_call_option
from .._block_lists import LIST_NAMES
from .._library import INVALID_ARGUMENT, fail, library
from .._structs import (
    APPEND,
    CPU,
    CUDA,
    DTYPE_CODES,
    INPUT_NAMES,
    MAX_RANK,
    RESULT_NAMES,
    RESULTS,
    SERVING_NAMES,
    SHARD_NAMES,
    Part,
    Structs,
    inputs_part,
)
from ._operands import Call, shapes_of_results

_ADDRESS = 1 << 20  # of a tensor that is never read
PAIRS = (*SHARD_NAMES, "append.slots")  # int64, whose elements travel as two words
_INPUTS = (*INPUT_NAMES, *SERVING_NAMES)

library.flashtile_can_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]


def check_tensor(name: str, array: Any) -> None:
    """Refuses what no flashtile_tensor can be made of."""
    if array.dtype.name not in DTYPE_CODES or array.dtype.name == "float8_e4m3fn":  # whose scales no handler takes
        raise TypeError(f"{name}.dtype is {array.dtype}, allowed is {allowed_dtypes(name)}")
    if len(array.shape) > MAX_RANK:
        raise ValueError(f"{name} has {len(array.shape)} dimensions, allowed are at most {MAX_RANK}")


def check(call: Call, operands: Any) -> None:
    """Raises where an argument is wrong. What is right and cannot be done here is left to the platform that runs it."""
    structs = _structs(call, call.given(operands), CPU)
    status = library.flashtile_can_run(*structs.addresses[:2], call.backward, None)
    if status == INVALID_ARGUMENT:
        fail(status)


def workspace_on_cuda(call: Call, operands: Any) -> int:
    """The bytes that a call needs on this process's first GPU; 0 also where there is none, or where it cannot run."""
    structs = _structs(call, call.given(operands), CUDA)
    size = ctypes.c_size_t()
    function = library.flashtile_backward_workspace if call.backward else library.flashtile_forward_workspace
    status = function(*structs.addresses[:3], ctypes.addressof(size))
    return size.value if status == 0 else 0


def _structs(call: Call, given: dict[str, Any], device: int) -> Structs:
    results = {name: (shape, dtype.name) for name, (shape, dtype) in
               zip(call.results, shapes_of_results(call, given), strict=True)}
    tensors = {}
    for name, array in given.items():
        pair = name in PAIRS
        shape = array.shape[:-1] if pair else array.shape
        tensors[name] = shape, "int64" if pair else array.dtype.name
    appends = any(name.startswith("append.") for name in given)
    pass_name = "backward" if call.backward else "forward"
    parts = [inputs_part(_INPUTS, call.options, **({"append": APPEND} if appends else {})),
             Part(RESULTS[pass_name], RESULT_NAMES[pass_name])]
    names = [*_INPUTS, *RESULT_NAMES[pass_name]]
    if appends:
        begin, interleaved = call.rotary
        parts.append(Part(APPEND, APPENDED, {"rotary_begin": begin, "rotary_interleaved": interleaved}))
        names += [f"append.{name}" for name in APPENDED]
    described = [tensors.get(name) or results.get(name) for name in names]
    if call.functions is not None:
        described += [tensors[f"tensors.{name}"] for name in call.functions.names]
        described += [tensors[name] for name in (f"block_lists.{name}" for name in LIST_NAMES) if name in tensors]
        described += [results[f"tensors.{name}"] for name in call.functions.wanted]
    sizes = [0 if each is None else 8 * _count(each[0]) + 256 for each in described]
    addresses = accumulate((-(-size // 256) * 256 for size in sizes), initial=_ADDRESS)
    fields = [_fields(each, address, device) for each, address in zip(described, addresses)]
    try:
        return Structs(parts, fields, call.options, call.functions)
    except StructError:
        blame_a_call_option(call.options)
        raise


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _fields(described: Optional[tuple[tuple[int, ...], str]], address: int, device: int) -> Optional[tuple]:
    if described is None:
        return None
    shape, dtype = described
    strides = [_count(shape[axis + 1:]) for axis in range(len(shape))]
    return (address, DTYPE_CODES[dtype], device, 0, len(shape), *shape, *strides)
