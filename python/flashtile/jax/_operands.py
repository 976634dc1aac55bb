"""A call's operands and results by name, and what each of their dimensions is. The rules for shapes, vmap and
partitioning are derived from this.

Dimensions are letters: b sequences, h heads, g heads of keys, i queries, j keys, d and e the widths of keys and values,
and whatever else, which no rule touches. An upper-case letter is a dimension that may be 1 and repeat. Dimensions
in front may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from .._block_lists import LIST_NAMES
from .._functions import Functions
from .._options import CallOptions
from .._structs import RESULT_NAMES, SHARD_NAMES

_CACHE = {"k": "pkgd", "v": "pkge"}  # pages, or rows that other sequences may use too
_SCORES = "BHij"
_DENSE = {"q": "bihd", "k": "bjgd", "v": "bjge", "out": "bihe", "lse": "bhi"}
_PACKED = {"q": "ihd", "k": "jgd", "v": "jge", "out": "ihe", "lse": "hi"}
_OTHERS = {"alibi_slopes": "bh", "bias": _SCORES, "mask": _SCORES, "sinks": "h", "seqused_k": "b", "seqused_q": "b",
           "first_k": "b", "block_table": "bn", "cache_batch_idx": "b", "tree_mask": _SCORES,
           **dict.fromkeys(SHARD_NAMES, "bw"),
           **{f"block_lists.{name}": "BHm" if "counts" in name else "BHmn" for name in LIST_NAMES}}
_GRADIENTS = {"dout": "out", "dlse": "lse", "dq": "q", "dk": "k", "dv": "v", "dbias": "bias", "dsinks": "sinks"}


class Call(NamedTuple):
    """What is static of a call. names: the operands', in their order; results: likewise. rotary: append's numbers."""

    names: tuple[str, ...]
    results: tuple[str, ...]
    options: CallOptions
    functions: Optional[Functions] = None
    rotary: tuple[int, bool] = (0, False)

    @property
    def backward(self) -> bool:
        return self.results[0] == RESULT_NAMES["backward"][4]

    def given(self, operands: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, operands, strict=True))

    def dims(self, name: str) -> str:
        """The dimensions of an operand or result."""
        name = name.removeprefix("zero.")
        name = _GRADIENTS.get(name, name)
        if name in ("k", "v") and ("block_table" in self.names or "cache_batch_idx" in self.names):
            return _CACHE[name]
        if name == "positions":
            return "bi" if "cu_seqlens_q" not in self.names else "i"
        packed = "cu_seqlens_q" in self.names and (name in ("q", "out", "lse") or "cu_seqlens_k" in self.names)
        return (_PACKED if packed else _DENSE).get(name) or _OTHERS.get(name, "")

    @property
    def numbered(self) -> bool:
        """Whether results depend on a sequence's and a head's number."""
        functions = self.functions
        return self.options.dropout != 0 or functions is not None and (functions.score or functions.mask) is not None

    @property
    def appends(self) -> bool:
        return any(name.startswith("append.") for name in self.names)


def shapes_of_results(call: Call, given: dict[str, Any]) -> list[tuple[tuple[int, ...], np.dtype]]:
    """The results' shapes and dtypes. given: the operands' shapes and dtypes."""
    q, v = given["q"], given["v"]
    *rows, heads, _ = q.shape
    made = {"out": ((*q.shape[:-1], v.shape[-1]), q.dtype),
            "lse": ((*rows[:-1], heads, rows[-1]), np.dtype(np.float32))}
    for name in call.results:
        if name.startswith("tensors."):
            made[name] = given[name].shape, np.dtype(np.float32)
        elif name not in made:
            like = given[_GRADIENTS.get(name, name)]
            made[name] = like.shape, like.dtype
    return [made[name] for name in call.results]
