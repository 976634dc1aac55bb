"""The shape of a quantised tensor's scales. Needs no PyTorch."""

from __future__ import annotations

from typing import Any, Optional

BLOCKS = (0, 64, 128)  # rows of a head that share a scale; 0: scales are for more


def scale_shape(x: Any, name: str, packed: Optional[int], block: int, scale_heads: int) -> tuple[int, ...]:
    """packed: how many sequences there are in x. A packed tensor gets as many blocks as it can have, since its lengths
    may lie on a GPU."""
    check_block(x, name, packed is not None, block)
    if block and scale_heads:
        raise ValueError(f"scale_heads is {scale_heads} with block {block}, allowed is one of them")
    *rows, heads, _ = x.shape
    batch = rows[0] if packed is None else packed
    if scale_heads:
        return batch, scale_heads
    if block == 0:
        return ()
    if packed is not None:
        return heads, rows[0] // block + batch
    return batch, heads, -(-rows[1] // block)


def check_block(x: Any, name: str, packed: bool, block: int) -> None:
    if block not in BLOCKS:
        raise ValueError(f"block is {block!r}, allowed is 0, 64 or 128")
    if x.ndim != (3 if packed else 4):
        raise ValueError(f"{name} has {x.ndim} dimensions, allowed is "
                         f"{'3: (total, heads, d)' if packed else '4: (batch, seqlen, heads, d)'}")
