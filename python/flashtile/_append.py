"""flashtile.Append: what attention appends to its cache before it attends. Needs no PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple


class Append(NamedTuple):
    """New keys and values that `flashtile.attention` writes to its cache first, the keys rotated by their positions if
    there are rotary_cos and rotary_sin, and its queries with them.

    The bits are those of `flashtile.append_kv` and a call of `flashtile.attention` after it. Every field is append_kv's
    argument of that name: a tensor or None, but for rotary_interleaved and rotary_begin. The cache is attention's k and
    v, and attention's seqused_k are the lengths before the call. q keeps its values; the rotated one is written where
    q_out is given.
    """

    k: Any
    v: Any = None
    slots: Any = None
    cu_seqlens_k_new: Any = None
    rotary_cos: Any = None
    rotary_sin: Any = None
    rotary_interleaved: bool = False
    rotary_begin: int = 0
    rotary_offsets: Any = None
    positions: Any = None
    q_out: Any = None
    positions_q: Any = None


NUMBERS = ("rotary_begin", "rotary_interleaved")
TENSORS = tuple(name for name in Append._fields if name not in NUMBERS)


def split(append: Any) -> tuple[tuple, tuple[int, bool]]:
    """The tensors, in the order of TENSORS, and the numbers."""
    if type(append) is not Append:
        raise TypeError(f"append is a {type(append).__name__}, allowed is None or a flashtile.Append")
    k, v, slots, cu, cos, sin, interleaved, begin, offsets, positions, q_out, positions_q = append
    return (k, v, slots, cu, cos, sin, offsets, positions, q_out, positions_q), (begin, interleaved)
