"""What stands for a value while a score or mask function is traced (_trace.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from struct import Struct
from typing import Any, NamedTuple, NoReturn, Optional

import torch
from torch import Tensor

KINDS = ("bool", "int", "float")  # the language's types; torch promotes to the right
DTYPES = (torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
ALLOWED = "torch.bool, torch.int32, torch.int64 or a float"
_FLOAT = Struct("f")


class Value(NamedTuple):
    """A value by its text: a name, a number, or a call of one of the language's functions. The dtype is that which
    torch would give it, None of a Python number; the language computes floats in fp32 and ints in 64 bits."""

    text: str
    kind: str
    dtype: Optional[torch.dtype]
    nonnegative: bool = False
    differentiable: bool = False
    number: Any = None  # where it is known


class Row(NamedTuple):
    """What is left of a tensor after some of its dimensions, the first ones, were given an index."""

    tensor: Tensor
    indices: tuple[Value, ...]


class Traced(Tensor):
    """A tensor that stands for a Value, or for a Row."""

    value: Any
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, value: Any, dtype: torch.dtype, device: torch.device, shape: Sequence[int] = ()) -> Traced:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, tuple(shape), dtype=dtype, device=device)
        made.value = value
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Traced({getattr(self.value, 'text', 'a row')})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise NotImplementedError("a value that a score or mask function was traced with is used after the trace")


def kind_of(dtype: torch.dtype) -> str:
    return "bool" if dtype is torch.bool else "float" if dtype.is_floating_point else "int"


def number(value: Any, dtype: Optional[torch.dtype] = None) -> Value:
    """A Python number, of a dtype where a tensor held it."""
    kind = kind_of(dtype) if dtype else "bool" if type(value) is bool else "int" if isinstance(value, int) else "float"
    value = {"bool": bool, "int": int, "float": float}[kind](value)
    return Value(_literal(value, kind), kind, dtype, value >= 0, False, value)


def _literal(value: Any, kind: str) -> str:
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        try:
            (value,) = _FLOAT.unpack(_FLOAT.pack(value))  # what fp32 has of it
        except OverflowError:
            value = float("inf") if value > 0 else -float("inf")
        if value != value:
            return "(inf - inf)"
        text = "inf" if abs(value) == float("inf") else repr(abs(value))
        return f"(-{text})" if value < 0 else text
    if value == -2**63:
        return f"(-{2**63 - 1} - 1)"
    return f"(-{-value})" if value < 0 else str(value)


def promoted(values: Sequence[Value]) -> torch.dtype:
    """The dtype that torch computes in. A Python number counts where its kind is the wider one."""
    dtype = reduce(torch.promote_types, [value.dtype for value in values if value.dtype is not None])
    for value in values:
        if value.dtype is None and KINDS.index(value.kind) > KINDS.index(kind_of(dtype)):
            dtype = torch.promote_types(dtype, torch.get_default_dtype() if value.kind == "float" else torch.int64)
    return dtype
