"""The options of a call as they travel between the package's files: CallOptions, whose fields are the operators'
arguments of the same names and order, and those of flashtile_options and flashtile_inputs. Needs no PyTorch.

Making a CallOptions by names takes a microsecond, a tenth of a small call's host time, and most calls have the options
of an earlier one. So what travels on the way of a warm call is a choice: a tuple of a function and the arguments of
which it makes the CallOptions. Equal choices give equal options, and the options are made where there was no such call
before.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Optional, get_type_hints

Size = Annotated[int, "SymInt"]  # a compiler may leave its value open
Choice = tuple  # (function, *arguments)


class CallOptions(NamedTuple):
    """The defaults are the library's."""

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


ALIGNMENTS = {"bottom-right": 0, "top-left": 1}  # flashtile_alignment; a causal mode's number is one more


def of_attention(causal: bool, window: tuple[int, int], align: str, scale: Optional[float], softcap: float,
                 dropout_p: float, deterministic: bool, batch_invariant: bool, exact_max: bool,
                 max_seqlen_q: Optional[int], max_seqlen_k: Optional[int]) -> CallOptions:
    """Those that `attention` takes."""
    alignment = ALIGNMENTS[align]
    left, right = window
    return CallOptions(
        max_seqlen_q=-1 if max_seqlen_q is None else max_seqlen_q,
        max_seqlen_k=-1 if max_seqlen_k is None else max_seqlen_k, causal=alignment + 1 if causal else 0,
        alignment=alignment, scale=scale, softcap=softcap, window_left=left, window_right=right, dropout=dropout_p,
        deterministic=deterministic, batch_invariant=batch_invariant, exact_max=exact_max)


def options_of(choice: Choice) -> CallOptions:
    function, *arguments = choice
    return function(*arguments)


def schema() -> str:
    """The options as arguments of an operator."""
    hints = get_type_hints(CallOptions, include_extras=True)
    return ", ".join(f"{_SCHEMA_TYPES[hint]} {name}" for name, hint in hints.items())


_SCHEMA_TYPES: dict[Any, str] = {Size: "SymInt", int: "int", bool: "bool", float: "float", Optional[float]: "float?"}
