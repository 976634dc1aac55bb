"""Which blocks of the scores are seen, as `flashtile.attention` takes them. Needs no PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._library import InvalidArgument


class BlockLists(NamedTuple):
    """Of each block of queries the blocks of keys that it sees; what is not listed is hidden, and costs nothing.

    Blocks are counted from each sequence's start. In those that the full lists name a mask function does not count.
    Naming a block twice, or one that is none, is an error on the CPU.

    Args:
        counts: int32 (batch or 1, heads or 1, blocks of queries): how many of a row of indices count.
        indices: int32 (batch or 1, heads or 1, blocks of queries, any): blocks of keys, in any order.
        full_counts, full_indices: likewise, or None.
        block_size: queries and keys of a block; multiples of 64.
    """

    counts: Any
    indices: Any
    full_counts: Any = None
    full_indices: Any = None
    block_size: tuple[int, int] = (128, 128)


LIST_NAMES = BlockLists._fields[:4]


def split_lists(lists: Any) -> tuple[dict[str, Any], tuple[int, int]]:
    """The tensors that are given, by the names that errors give them, and the block size."""
    if type(lists) is not BlockLists:
        raise TypeError(f"block_lists is a {type(lists).__name__}, allowed is None or a flashtile.BlockLists")
    size = lists.block_size
    if not (isinstance(size, (tuple, list)) and len(size) == 2 and all(type(n) is int for n in size)):
        raise TypeError(f"block_lists.block_size is {size!r}, allowed are two whole numbers")
    if (lists.full_counts is None) is not (lists.full_indices is None):
        raise InvalidArgument("block_lists has one of full_counts and full_indices, allowed are both or none")
    return {f"block_lists.{name}": tensor for name, tensor in zip(LIST_NAMES, lists)
            if tensor is not None or name in LIST_NAMES[:2]}, (size[0], size[1])
