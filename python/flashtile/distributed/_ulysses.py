"""Ulysses: neighbouring ranks exchange rows for heads. Each then has all rows of their shards together, for some of the
heads. Of key heads that are fewer than ranks, several ranks get the same one, whose gradients are added up at home."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._exchange import Peers, swap
from ._layout import Interval, Layout, place_in, rows_in


def splits_heads(heads: int, kv_heads: int, width: int) -> bool:
    """Whether `width` ranks can share the heads: as many query heads each, and of each key head as many."""
    return heads % width == 0 and (kv_heads % width == 0 or width % kv_heads == 0)


class Heads(NamedTuple):
    """Which heads each of `width` neighbouring ranks has."""

    peers: Peers
    layout: Layout
    width: int
    heads: int
    kv_heads: int

    @property
    def own(self) -> int:
        return self.peers.rank % self.width

    def queries(self, member: int) -> Interval:
        share = self.heads // self.width
        return member * share, (member + 1) * share

    def keys(self, member: int) -> Interval:
        group, (start, end) = self.heads // self.kv_heads, self.queries(member)
        return start // group, (end - 1) // group + 1

    def rank_of(self, member: int) -> int:
        return self.peers.rank - self.own + member

    def _all_intervals(self) -> tuple[Interval, ...]:
        return self.layout.of_neighbours(self.rank_of(0), self.rank_of(self.width))

    def gather_rows(self, tensors: tuple[Tensor, ...], are_queries: tuple[bool, ...]) -> tuple[Tensor, ...]:
        """From this rank's rows of all heads to all rows, in their order, of this rank's heads."""
        def ranges(member: int) -> list[Interval]:
            return [self.queries(member) if of_queries else self.keys(member) for of_queries in are_queries]

        intervals = self._all_intervals()
        whole = tuple(x.new_empty((x.shape[0], rows_in(intervals), end - start, *x.shape[3:]))
                      for x, (start, end) in zip(tensors, ranges(self.own)))
        own = self._places(self.own, intervals)
        sends, into = {}, {}
        for member in range(self.width):
            rank = self.rank_of(member)
            sends[rank] = [x[:, source:source + rows, start:end] for x, (start, end) in zip(tensors, ranges(member))
                           for source, _, rows in own]
            into[rank] = [x[:, place:place + rows] for x in whole for _, place, rows in self._places(member, intervals)]
        swap(self.peers, sends, into)
        return whole

    def scatter_rows(self, tensors: tuple[Tensor, ...], are_queries: tuple[bool, ...]) -> tuple[Tensor, ...]:
        """Back: from all rows of this rank's heads to this rank's rows of all heads, the sum of those that several
        ranks have, in their order."""
        intervals, own_rows = self._all_intervals(), self.layout.rows(self.peers.rank)
        several = self.kv_heads < self.width and not all(are_queries)
        result = tuple((x.new_zeros if several else x.new_empty)(
            (x.shape[0], own_rows, self.heads if of_queries else self.kv_heads, *x.shape[3:]))
            for x, of_queries in zip(tensors, are_queries))
        own = self._places(self.own, intervals)
        sends, into = {}, {}
        for member in range(self.width):
            rank = self.rank_of(member)
            ranges = [self.queries(member) if of_queries else self.keys(member) for of_queries in are_queries]
            sends[rank] = [x[:, place:place + rows] for x in tensors
                           for _, place, rows in self._places(member, intervals)]
            into[rank] = [x[:, source:source + rows, start:end] for x, (start, end) in zip(result, ranges)
                          for source, _, rows in own]
        swap(self.peers, sends, into, add=several)
        return result

    def _places(self, member: int, intervals: tuple[Interval, ...]) -> list[tuple[int, int, int]]:
        """Of each interval of a member: its row among the member's, its row among all, how many rows it has."""
        result, before = [], 0
        for part in self.layout.of(self.rank_of(member)):
            rows = part[1] - part[0]
            if rows > 0:
                result.append((before, place_in(intervals, part), rows))
            before += rows
        return result
