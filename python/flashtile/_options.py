"""The options of a call as the package's files hand them to each other: CallOptions. The operators' arguments and the
fields of the C structs are derived from it. Needs no PyTorch.

Making a CallOptions by names takes a microsecond, a tenth of a small call's host time, and most calls have the options
of an earlier call. So the functions on the way of a warm call hand on a recipe instead: a tuple of a function and of
the arguments from which it makes the CallOptions. Calls with equal recipes share their filled structs (_run.py), and
the CallOptions is made only for the first of them.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Optional, Union, get_type_hints

Size = Annotated[int, "SymInt"]  # a whole number that torch.compile may keep as a symbol
Recipe = tuple  # (function, *arguments)


class CallOptions(NamedTuple):
    """Every option of a call that is not a tensor, with the library's default. Operators take them in this order."""

    max_seqlen_q: Size = -1
    max_seqlen_k: Size = -1
    causal: int = 0
    alignment: int = 0
    scale: Optional[float] = None
    softcap: float = 0.0
    window_left: Size = -1
    window_right: Size = -1
    dropout: float = 0.0
    deterministic: bool = False
    batch_invariant: bool = False
    exact_max: bool = False
    attention_chunk: Size = 0
    num_splits: int = 0
    sm_limit: int = 0
    diagonal: Size = 0
    origin_b: Size = 0
    origin_h: Size = 0
    origin_i: Size = 0
    origin_j: Size = 0


# Where a shard lies: a number for all sequences, or a tensor or array of int64, one a sequence.
OneOrEach = Union[int, Any]
WHOLE = (0, 0, 0, 0)  # the origin of what is no shard


def split_shard(diagonal: OneOrEach, origin: tuple[int, int, OneOrEach, OneOrEach],
                kind: type) -> tuple[int, tuple[int, int, int, int], tuple[Any, Any, Any]]:
    """attention's diagonal and origin as numbers, and the call's diagonals, origins_i and origins_j: what is a tensor or
    array (`kind`) of more than a number is one of those, and 0 for all sequences."""
    b, h, *places = origin
    i, j = places
    each = tuple(at if isinstance(at, kind) and at.ndim else None for at in (diagonal, i, j))
    diagonal, i, j = (at if own is None else 0 for at, own in zip((diagonal, i, j), each))
    return diagonal, (b, h, i, j), each  # type: ignore[return-value]


# What flashtile.attention takes for options that are not given and are no tensors: of_attention's arguments.
DEFAULTS: dict[str, Any] = {
    "causal": False, "window": (-1, -1), "align": "bottom-right", "scale": None, "softcap": 0.0, "dropout_p": 0.0,
    "deterministic": False, "batch_invariant": False, "exact_max": False, "max_seqlen_q": None, "max_seqlen_k": None,
    "attention_chunk": 0, "num_splits": 0, "sm_limit": 0, "diagonal": 0, "origin": WHOLE}

ALIGNMENTS = {"bottom-right": 0, "top-left": 1}  # flashtile_alignment; a causal mode's number is one more


def of_attention(causal: bool, window: tuple[int, int], align: str, scale: Optional[float], softcap: float,
                 dropout_p: float, deterministic: bool, batch_invariant: bool, exact_max: bool,
                 max_seqlen_q: Optional[int], max_seqlen_k: Optional[int], attention_chunk: int, num_splits: int,
                 sm_limit: int, diagonal: int, origin: tuple[int, int, int, int]) -> CallOptions:
    """From the options as flashtile.attention takes them."""
    alignment = ALIGNMENTS[align]
    left, right = window
    origin_b, origin_h, origin_i, origin_j = origin
    return CallOptions(
        max_seqlen_q=-1 if max_seqlen_q is None else max_seqlen_q,
        max_seqlen_k=-1 if max_seqlen_k is None else max_seqlen_k, causal=alignment + 1 if causal else 0,
        alignment=alignment, scale=scale, softcap=softcap, window_left=left, window_right=right, dropout=dropout_p,
        deterministic=deterministic, batch_invariant=batch_invariant, exact_max=exact_max,
        attention_chunk=attention_chunk, num_splits=num_splits, sm_limit=sm_limit, diagonal=diagonal,
        origin_b=origin_b, origin_h=origin_h, origin_i=origin_i, origin_j=origin_j)


def options_of(recipe: Recipe) -> CallOptions:
    function, *arguments = recipe
    return function(*arguments)


def schema() -> str:
    """The options as arguments of an operator."""
    hints = get_type_hints(CallOptions, include_extras=True)
    return ", ".join(f"{_SCHEMA_TYPES[hint]} {name}" for name, hint in hints.items())


_SCHEMA_TYPES: dict[Any, str] = {Size: "SymInt", int: "int", bool: "bool", float: "float", Optional[float]: "float?"}
