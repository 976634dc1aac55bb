"""The score and mask functions of a call, as the package's files hand them to each other. The library's language of
texts is docs/functions.md's. Needs no PyTorch."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Functions(NamedTuple):
    """Texts, and the names of the tensors that they may name; the tensors travel beside it in the same order, and behind
    them those of lists of blocks, counts, indices and then the full ones, where there is a block size. Operators take
    these four in this order. Backward writes the gradients of the wanted ones, which follow the tensors."""

    score: Optional[str] = None
    mask: Optional[str] = None
    names: tuple[str, ...] = ()
    block_size: tuple[int, ...] = ()
    wanted: tuple[str, ...] = ()
