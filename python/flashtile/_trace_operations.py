"""PyTorch's operations on single elements, as the language of docs/functions.md writes them: OPERATIONS, by the
operations' names without underscores around them. Each takes the trace and the operation's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Union

import torch

from ._trace_values import Row, Traced, Value, number, promoted

if TYPE_CHECKING:
    from ._trace import Trace

Operation = Callable[..., Any]


def _cast(t: Trace, dtype: torch.dtype, *given: Any) -> list[Value]:
    return [t.cast(t.value(x), dtype) for x in given]


def _in_common(t: Trace, *given: Any) -> tuple[torch.dtype, list[Value]]:
    """The values in the dtype that torch computes in."""
    values = [t.value(x) for x in given]
    dtype = promoted(values)
    return dtype, _cast(t, dtype, *values)


def _as_floats(t: Trace, *given: Any) -> tuple[torch.dtype, list[Value]]:
    """Likewise, of an operation that gives a float of ints too."""
    values = [t.value(x) for x in given]
    dtype = promoted(values)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return dtype, _cast(t, dtype, *values)


def _add(t: Trace, x: Any, y: Any, *, alpha: Any = 1) -> Value:
    dtype, (a, b) = _in_common(t, x, y if alpha == 1 else _multiply(t, y, alpha))
    return t.part(f"{a.text} {'|' if a.kind == 'bool' else '+'} {b.text}", dtype, a, b,
                  nonnegative=a.nonnegative and b.nonnegative)


def _subtract(t: Trace, x: Any, y: Any, *, alpha: Any = 1) -> Value:
    dtype, (a, b) = _in_common(t, x, y if alpha == 1 else _multiply(t, y, alpha))
    return t.part(f"{a.text} - {b.text}", dtype, a, b)


def _multiply(t: Trace, x: Any, y: Any) -> Value:
    dtype, (a, b) = _in_common(t, x, y)
    return t.part(f"{a.text} {'&' if a.kind == 'bool' else '*'} {b.text}", dtype, a, b,
                  nonnegative=a.nonnegative and b.nonnegative)


def _divide(t: Trace, x: Any, y: Any, *, rounding_mode: Optional[str] = None) -> Value:
    if rounding_mode == "floor":
        return _floor_divide(t, x, y)
    if rounding_mode == "trunc":
        return _truncating_divide(t, x, y)
    dtype, (a, b) = _as_floats(t, x, y)
    return t.part(f"{a.text} / {b.text}", dtype, a, b)


def _of_ints(name: str, sign: str) -> Operation:
    def operation(t: Trace, x: Any, y: Any) -> Value:
        dtype, (a, b) = _in_common(t, x, y)
        if a.kind != "int":
            t.refuse(f"calls {name} of {dtype}", "allowed are ints")
        return t.part(f"{a.text} {sign} {b.text}", dtype, a, b,
                      nonnegative=b.nonnegative and (a.nonnegative or sign == "%"))

    return operation


_floor_divide = _of_ints("floor_divide", "//")


def _truncating_divide(t: Trace, x: Any, y: Any) -> Value:
    floor = _floor_divide(t, x, y)
    _, (a, b) = _in_common(t, x, y)
    return t.part(f"{floor.text} < 0 && {floor.text} * {b.text} != {a.text} ? {floor.text} + 1 : {floor.text}",
                  floor.dtype, a, b, nonnegative=floor.nonnegative)


def _compare(sign: str) -> Operation:
    def operation(t: Trace, x: Any, y: Any) -> Value:
        dtype, (a, b) = _in_common(t, x, y)
        if dtype is torch.bool and sign not in ("==", "!="):
            a, b = _cast(t, torch.int64, a, b)
        return t.part(f"{a.text} {sign} {b.text}", torch.bool, a, b)

    return operation


def _logical(sign: str) -> Operation:
    def operation(t: Trace, x: Any, y: Any) -> Value:
        a, b = _cast(t, torch.bool, x, y)
        return t.part(f"{a.text} {sign} {b.text}", torch.bool, a, b)

    return operation


def _bits(name: str, sign: str) -> Operation:
    def operation(t: Trace, x: Any, y: Any) -> Value:
        dtype, (a, b) = _in_common(t, x, y)
        if a.kind == "float" or (a.kind == "bool" and name.endswith("shift")):
            t.refuse(f"calls {name} of {dtype}", "allowed are ints")
        return t.part(f"{a.text} {sign} {b.text}", dtype, a, b,
                      nonnegative=a.nonnegative and (b.nonnegative and name != "lshift"))

    return operation


def _extreme(name: str, on_bools: str) -> Operation:
    def operation(t: Trace, x: Any, y: Any) -> Value:
        dtype, (a, b) = _in_common(t, x, y)
        nonnegative = (any if name == "max" else all)((a.nonnegative, b.nonnegative))
        return t.part(f"{a.text} {on_bools} {b.text}" if a.kind == "bool" else f"{name}({a.text}, {b.text})", dtype,
                      a, b, nonnegative=nonnegative)

    return operation


_minimum, _maximum = _extreme("min", "&"), _extreme("max", "|")


def _clamp(t: Trace, x: Any, min: Any = None, max: Any = None) -> Value:
    """In the dtype of all three."""
    dtype, (value, *_) = _in_common(t, *(given for given in (x, min, max) if given is not None))
    if min is not None:
        value = _maximum(t, value, min)
    return t.cast(value if max is None else _minimum(t, value, max), dtype)


def _where(t: Trace, condition: Any, x: Any, y: Any) -> Value:
    asked = t.value(condition)
    if asked.kind != "bool":
        t.refuse(f"asks where a {asked.kind} is", "allowed is a bool")
    dtype, (a, b) = _in_common(t, x, y)
    return t.part(f"{asked.text} ? {a.text} : {b.text}", dtype, asked, a, b,
                  nonnegative=a.nonnegative and b.nonnegative)


def _masked_fill(t: Trace, x: Any, mask: Any, value: Any) -> Value:
    kept = t.value(x)
    return _where(t, mask, t.cast(t.value(value), kept.dtype or torch.float32), kept)


def _of_float(expression: str) -> Operation:
    """A function of a float. {x} is it in the expression."""

    def operation(t: Trace, x: Any) -> Value:
        dtype, (a,) = _as_floats(t, x)
        return t.part(expression.format(x=a.text), dtype, a)

    return operation


_exp, _sqrt = _of_float("exp({x})"), _of_float("sqrt({x})")


def _sigmoid(t: Trace, x: Any) -> Value:
    """By exp(-|x|), which is finite, as is its derivative."""
    near_zero = _exp(t, _negate(t, _absolute(t, x)))
    below = _add(t, near_zero, 1.0)
    _, (value,) = _as_floats(t, x)
    return _divide(t, _where(t, _compare(">=")(t, value, 0.0), 1.0, near_zero), below)


def _negate(t: Trace, x: Any) -> Value:
    value = t.value(x)
    return t.part(f"-{value.text}", value.dtype, value)


def _absolute(t: Trace, x: Any) -> Value:
    value = t.value(x)
    return t.part(f"abs({value.text})", value.dtype, value, nonnegative=True)


def _sign(t: Trace, x: Any) -> Value:
    value = t.value(x)
    zero, one, less = _cast(t, value.dtype or torch.float32, 0, 1, -1)
    return t.part(f"{value.text} > {zero.text} ? {one.text} : {value.text} < {zero.text} ? {less.text} : {zero.text}",
                  value.dtype, value)


def _rounded(correction: Optional[str]) -> Operation:
    """To a whole number. correction: of that towards zero, {n}, where it is not the one that is wanted."""

    def operation(t: Trace, x: Any) -> Value:
        value = t.value(x)
        if value.kind != "float":
            return value
        whole = t.part(f"float(int({value.text}))", value.dtype, value)
        right = whole.text if correction is None else correction.format(n=whole.text, x=value.text)
        # From 2^23 on a float is a whole number, and infinity has no int.
        return t.part(f"abs({value.text}) < 8388608.0 ? ({right}) : {value.text}", value.dtype, value,
                      nonnegative=value.nonnegative)

    return operation


def _power(t: Trace, x: Any, y: Any) -> Value:
    base, exponent = t.value(x), t.value(y)
    if exponent.number is not None:
        return _power_of_a_number(t, base, exponent.number)
    if base.number is None or base.number <= 0:
        t.refuse("calls pow of two tensors", "allowed is a number as the exponent, or a positive one as the base")
    dtype = promoted((base, exponent))
    if not dtype.is_floating_point:
        if base.number != 2:
            t.refuse(f"calls pow of {base.number} and an int", "allowed is 2, or a float")
        return t.part(f"1 << {exponent.text}", dtype, exponent, nonnegative=True)
    return _exp(t, _multiply(t, exponent, math.log(base.number)))


def _power_of_a_number(t: Trace, base: Value, exponent: Any) -> Value:
    dtype = promoted((base, number(exponent)))
    base = t.cast(base, dtype)
    if abs(exponent) == 0.5:
        root = _sqrt(t, base)
        return root if exponent > 0 else _reciprocal(t, root)
    if exponent != int(exponent) or abs(exponent) > 64 or (exponent < 0 and not dtype.is_floating_point):
        t.refuse(f"calls pow with the exponent {exponent}", "allowed are whole numbers to 64, 0.5 and -0.5")
    if exponent == 0:
        return number(1, dtype)
    value, left, square = None, abs(int(exponent)), base
    while left:
        if left & 1:
            value = square if value is None else _multiply(t, value, square)
        left >>= 1
        if left:
            square = _multiply(t, square, square)
    assert value is not None
    return value if exponent > 0 else _reciprocal(t, value)


def _reciprocal(t: Trace, x: Any) -> Value:
    return _divide(t, 1.0, x)


def _not(t: Trace, x: Any) -> Value:
    (value,) = _cast(t, torch.bool, x)
    return t.part(f"!{value.text}", torch.bool, value)


def _bitwise_not(t: Trace, x: Any) -> Value:
    value = t.value(x)
    if value.kind == "float":
        t.refuse("calls bitwise_not of a float", "allowed are ints and bools")
    return _not(t, x) if value.kind == "bool" else t.part(f"~{value.text}", value.dtype, value)


def _to(t: Trace, x: Any, *, dtype: Optional[torch.dtype] = None, **_: Any) -> Value:
    value = t.value(x)
    return value if dtype is None else t.cast(value, dtype)


def _same(t: Trace, x: Any, shape: Any = (), **_: Any) -> Union[Value, Row]:
    if shape:
        t.refuse(f"makes a tensor of shape {tuple(shape)}", "allowed are single elements")
    return x.value


def _new(n: Any, at: Optional[int] = None) -> Operation:
    """A tensor like another one that is filled with a number: n, or the argument behind the first `at`."""

    def operation(t: Trace, x: Any, *more: Any, dtype: Optional[torch.dtype] = None, **_: Any) -> Value:
        return number(n if at is None else more[at], dtype or x.dtype)

    return operation


def _index(t: Trace, x: Any, indices: Any) -> Union[Value, Row]:
    row = x.value if isinstance(x, Traced) else Row(x, ())
    if not isinstance(row, Row) or len(row.indices) + len(indices) > row.tensor.dim():
        raise IndexError(f"{t.what} gives a tensor more indices than it has dimensions")
    row = row._replace(indices=(*row.indices, *map(t.value, indices)))
    return row if len(row.indices) < row.tensor.dim() else t.load(row)


def _number_of(t: Trace, x: Any) -> NoReturn:
    t.refuse("branches on a value, or asks for the number that it is, or slices by it: it is one for each element",
             "allowed are torch.where, &, |, ~, torch.minimum, torch.maximum, and an index for every dimension")


OPERATIONS: dict[str, Operation] = {
    "add": _add, "sub": _subtract, "rsub": lambda t, x, y, alpha=1: _subtract(t, y, x, alpha=alpha), "mul": _multiply,
    "div": _divide, "floor_divide": _floor_divide, "remainder": _of_ints("remainder", "%"), "neg": _negate,
    "abs": _absolute, "sign": _sign, "minimum": _minimum, "maximum": _maximum, "clamp": _clamp,
    "clamp_min": _maximum, "clamp_max": _minimum, "relu": lambda t, x: _maximum(t, x, 0), "where": _where,
    "masked_fill": _masked_fill,
    "eq": _compare("=="), "ne": _compare("!="), "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"),
    "ge": _compare(">="), "logical_and": _logical("&&"), "logical_or": _logical("||"), "logical_xor": _logical("!="),
    "logical_not": _not, "bitwise_and": _bits("bitwise_and", "&"), "bitwise_or": _bits("bitwise_or", "|"),
    "bitwise_xor": _bits("bitwise_xor", "^"), "bitwise_not": _bitwise_not, "lshift": _bits("lshift", "<<"),
    "rshift": _bits("rshift", ">>"), "bitwise_left_shift": _bits("lshift", "<<"),
    "bitwise_right_shift": _bits("rshift", ">>"),
    "exp": _exp, "exp2": _of_float(f"exp({{x}} * {math.log(2)!r})"), "log": _of_float("log({x})"),
    "log2": _of_float(f"log({{x}}) * {1 / math.log(2)!r}"), "log10": _of_float(f"log({{x}}) * {1 / math.log(10)!r}"),
    "log1p": _of_float("log(1.0 + {x})"), "tanh": _of_float("tanh({x})"), "sqrt": _sqrt,
    "rsqrt": _of_float("1.0 / sqrt({x})"), "sigmoid": _sigmoid, "silu": lambda t, x: _multiply(t, x, _sigmoid(t, x)),
    "reciprocal": _reciprocal, "square": lambda t, x: _multiply(t, x, x), "pow": _power,
    "floor": _rounded("{n} > {x} ? {n} - 1.0 : {n}"), "ceil": _rounded("{n} < {x} ? {n} + 1.0 : {n}"),
    "trunc": _rounded(None),
    "to_copy": _to, "index": _index, "alias": _same, "clone": _same, "lift_fresh": _same, "expand": _same,
    "view": _same, "detach": _same, "zeros_like": _new(0), "ones_like": _new(1),
    "full_like": _new(None, 0), "new_zeros": _new(0), "new_ones": _new(1), "new_full": _new(None, 1),
    "local_scalar_dense": _number_of,
}
