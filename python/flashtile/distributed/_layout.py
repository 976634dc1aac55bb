"""Which rows of a sequence each rank has. Pure Python: every rank computes the same from the same numbers.

Interval: rows [start, end) of the whole sequence; for packed documents, of all documents one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

Interval = tuple[int, int]
LAYOUTS = ("zigzag", "contiguous")


def cut(total: int, parts: int) -> list[Interval]:
    """`total` rows in neighbouring parts that differ by one row at most. Some are empty where parts > total."""
    return [(total * n // parts, total * (n + 1) // parts) for n in range(parts)]


def rows_in(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


class Layout(NamedTuple):
    """zigzag: the sequence is cut in twice as many parts as there are ranks, and rank n has the n-th part from the
    start and the n-th from the end. Under a causal mask all ranks then have the same work. contiguous: rank n has part n."""

    kind: str
    world: int
    seqlen: int

    def of(self, rank: int) -> tuple[Interval, ...]:
        """A rank's intervals in the order of its rows, which is ascending."""
        return self.of_neighbours(rank, rank + 1)

    def of_neighbours(self, first: int, end: int) -> tuple[Interval, ...]:
        """The intervals that ranks [first, end) have together. Neighbours share borders, so these are two at most."""
        return _intervals(self.kind, self.world, self.seqlen, first, end)

    def rows(self, rank: int) -> int:
        return rows_in(self.of(rank))


@lru_cache(maxsize=4096)
def _intervals(kind: str, world: int, seqlen: int, first: int, end: int) -> tuple[Interval, ...]:
    if kind == "contiguous":
        parts = cut(seqlen, world)
        return ((parts[first][0], parts[end - 1][1]),)
    parts = cut(seqlen, 2 * world)
    front = parts[first][0], parts[end - 1][1]
    back = parts[2 * world - end][0], parts[2 * world - 1 - first][1]
    return (front, back) if front[1] < back[0] else ((front[0], back[1]),)


def place_in(intervals: Sequence[Interval], part: Interval) -> int:
    """The row at which `part` starts among the rows of `intervals`, one of which holds it."""
    before = 0
    for start, end in intervals:
        if start <= part[0] and part[1] <= end:
            return before + part[0] - start
        before += end - start
    raise AssertionError(f"{part} is not in {intervals}")
