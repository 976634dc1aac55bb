"""Writes a Python function of a score, or of positions, as a text of docs/functions.md.

The function is called once, with tensors without memory that stand for s, b, h, i and j. PyTorch hands every operation
on them to a dispatch mode, which writes it down (_trace_operations.py) instead of computing it. torch.fx would do the
same in twenty times the time. What the function computes of other tensors alone is computed as always. Those that it
reads by a traced value, and single numbers in tensors, become tensors that the text names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from inspect import getclosurevars
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ._trace_operations import OPERATIONS
from ._trace_values import ALLOWED, DTYPES, Row, Traced, Value, kind_of, number

_MAKES = ("scalar_tensor", "full", "zeros", "ones", "lift_fresh", "lift_fresh_copy")  # the last two: torch.tensor
_ARGUMENTS = {"score": ("s", "b", "h", "i", "j"), "mask": ("b", "h", "i", "j")}


class Captured:
    """The tensors that a call's functions read, under their names."""

    def __init__(self, given: dict[str, Tensor]):
        self.tensors = dict(given)
        self.names: dict[Any, str] = {}

    def name(self, tensor: Tensor) -> str:
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype,
               tensor.requires_grad)
        name = self.names.get(key)
        if name is None:
            name = self.names[key] = next(name for n in range(len(self.tensors) + 1)
                                          if (name := f"x{n}") not in self.tensors)
            self.tensors[name] = tensor
        return name

    def read_by(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Those that the texts name, as the library takes them."""
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        return {name: _plain(tensor) for name, tensor in self.tensors.items() if name in words}


def _plain(tensor: Tensor) -> Tensor:
    if tensor.dtype is torch.float64:
        tensor = tensor.float()
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


class Trace(TorchDispatchMode):
    """Writes down what a function does. what: "score" or "mask"."""

    def __init__(self, what: str, function: Callable, captured: Captured, device: torch.device):
        super().__init__()
        self.what, self.function, self.captured, self.device = what, function, captured, device
        self.records = torch.is_grad_enabled()
        self.parts: dict[str, str] = {}  # by its expression a part's name
        self.made: dict[int, Tensor] = {}  # new tensors of the function's, by what id says as long as they live

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A mode keeps compilers off, for which PyTorch would import torch._dynamo, in a second. Here a trace is run
        between compiled graphs anyway."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.rpartition("::")[2].strip("_")
        if Traced not in types:
            made = func(*args, **kwargs)
            self._remember(name, args, made)
            return made
        if self.records and not torch.is_grad_enabled():
            self.refuse("computes under torch.no_grad()", "allowed is a call of attention under it")
        operation = OPERATIONS.get(name)
        writes = func._schema.is_mutable
        if operation is None or "out" in kwargs or (writes and not isinstance(args[0], Traced)):
            self.refuse(f"calls {func}", "allowed are " + ", ".join(sorted(OPERATIONS)) +
                        ", and everything on tensors that no argument is part of" if operation is None else
                        "allowed is what makes a new tensor")
        result = operation(self, *args, **kwargs)
        if isinstance(result, Row):
            return Traced(result, result.tensor.dtype, self.device, result.tensor.shape[len(result.indices):])
        if not writes:
            return Traced(result, result.dtype, self.device)
        target = args[0]
        if not torch.can_cast(result.dtype, target.dtype):
            self.refuse(f"writes {result.dtype} to {target.dtype}", "allowed is a dtype that torch casts to it")
        target.value = self.cast(result, target.dtype)
        return target

    def _remember(self, name: str, args: Any, made: Any) -> None:
        """Single numbers that the function makes tensors of, as torch.where does of its own, are numbers in the
        text."""
        if name in _MAKES or (name == "detach" and id(args[0]) in self.made):
            self.made[id(made)] = made

    def differentiates(self, tensor: Tensor) -> bool:
        return self.records and tensor.requires_grad

    def check_detached(self, value: Any) -> None:
        """The language has no way to say that a value is to have no gradient."""
        has_one = self.differentiates(value.tensor) if isinstance(value, Row) else (
            value.differentiable and value.kind == "float")
        if has_one:
            self.refuse("detaches a value that has a gradient: the score, or a tensor that requires one, is part of it",
                        "allowed is one of which neither is")

    def refuse(self, does: str, allowed: str) -> NoReturn:
        raise NotImplementedError(f"{self.what} {does}; {allowed}")

    def value(self, given: Any) -> Value:
        """The value of an operation's argument: a number, a tensor with one element, or a traced one."""
        if isinstance(given, Value):
            return given
        if isinstance(given, Traced):
            if isinstance(given.value, Row):
                self.refuse(f"computes with a tensor of shape {tuple(given.shape)}",
                            "allowed are single elements: give an index for every dimension")
            return given.value
        if not isinstance(given, Tensor):
            if not isinstance(given, (bool, int, float)):
                self.refuse(f"computes with a {type(given).__name__}", "allowed are tensors and numbers")
            return number(given)
        if given.dim() != 0:
            self.refuse(f"computes with a tensor of shape {tuple(given.shape)}",
                        "allowed are single elements, as x[h] is one")
        if id(given) in self.made and type(given) is Tensor:  # a tracer's tensor has no number
            return number(given.item(), given.dtype)
        return Value(f"{self._name(given)}[0]", kind_of(given.dtype), given.dtype,
                     differentiable=self.differentiates(given))

    def _name(self, tensor: Tensor) -> str:
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{_shown(tensor, self.function, self.what)} is {tensor.dtype}, allowed is {ALLOWED}")
        return self.captured.name(tensor)

    def load(self, row: Row) -> Value:
        tensor = row.tensor
        indices = ", ".join(self._index(at, size) for at, size in zip(row.indices, tensor.shape, strict=True))
        return self.part(f"{self._name(tensor)}[{indices}]", tensor.dtype, *row.indices,
                         differentiable=self.differentiates(tensor))

    def _index(self, at: Value, size: int) -> str:
        """An index as torch takes it: -1 is the last."""
        if at.kind != "int":
            self.refuse(f"has a {at.kind} as an index", "allowed is an int")
        if at.number is not None and not -size <= at.number < size:
            raise IndexError(f"{self.what} has the index {at.number} for a dimension of size {size}")
        if at.number is not None:
            return str(at.number % size)
        return at.text if at.nonnegative else self.part(f"{at.text} < 0 ? {at.text} + {size} : {at.text}", at.dtype,
                                                        at).text

    def part(self, expression: str, dtype: Any, *of: Value, nonnegative: bool = False,
             differentiable: bool = False) -> Value:
        """The value of an expression, under a name."""
        name = self.parts.setdefault(expression, f"t{len(self.parts)}")
        return Value(name, kind_of(dtype), dtype, nonnegative, differentiable or any(value.differentiable for value in of))

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The value in a dtype."""
        if dtype not in DTYPES:
            self.refuse(f"converts to {dtype}", f"allowed is {ALLOWED}")
        if value.number is not None:
            return number(value.number, dtype)
        kind = kind_of(dtype)
        text = value.text if kind == value.kind else f"{kind}({value.text})"
        return value._replace(text=text, kind=kind, dtype=dtype)

    def run(self) -> str:
        """Calls the function and returns its text."""
        values = [Value(name, "float", torch.float32, differentiable=True) if name == "s" else
                  Value(name, "int", torch.int64, nonnegative=True) for name in _ARGUMENTS[self.what]]
        leaves = [Traced(value, value.dtype, self.device) for value in values]
        with _Calls(self), self:
            result = self.function(*leaves)
        value = self.value(result)
        if (value.kind == "bool") != (self.what == "mask"):
            self.refuse(f"gives a {value.kind}", f"allowed is a {'bool' if self.what == 'mask' else 'float'}")
        needed, parts = {*re.findall(r"\w+", value.text)}, []
        for expression, name in reversed(self.parts.items()):
            if name in needed:
                needed.update(re.findall(r"\w+", expression))
                parts.append(f"{name} = {expression}; ")
        return "".join(reversed(parts)) + value.text


class _Calls(TorchFunctionMode):
    """What only shows before autograd has its turn, which detaches tensors to keep them. x[h] with a traced h is an
    operation, where torch would ask for the number that h is."""

    def __init__(self, trace: Trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.detach, Tensor.detach_, torch.detach, torch.detach_) and isinstance(args[0], Traced):
            self.trace.check_detached(args[0].value)
        if func is Tensor.__getitem__:
            x, index = args
            index = list(index) if isinstance(index, (tuple, list)) else [index]
            while index and (index[-1] is Ellipsis or index[-1] == slice(None)):
                index.pop()
            if index and any(isinstance(of, Traced) for of in (x, *index)) and all(
                    isinstance(at, (Tensor, int)) and not isinstance(at, bool) for at in index):
                return torch.ops.aten.index(x, [at if isinstance(at, Tensor) else Traced(
                    number(at), torch.int64, x.device) for at in index])
        return func(*args, **(kwargs or {}))


def _shown(tensor: Tensor, function: Callable, what: str) -> str:
    """What a function calls a tensor, for errors."""
    try:
        seen = getclosurevars(function)
    except TypeError:  # no function of Python's own
        named = {}
    else:
        named = {**seen.globals, **seen.nonlocals}
    name = next((name for name, value in named.items() if value is tensor), None)
    return f"{what}'s {name}" if name else f"a tensor {tuple(tensor.shape)} that {what} reads"


def trace(what: str, function: Callable, captured: Captured, device: torch.device) -> str:
    """The text of a function; the tensors that it names are added to `captured`."""
    return Trace(what, function, captured, device).run()
