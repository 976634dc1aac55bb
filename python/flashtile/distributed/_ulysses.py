"""Ulysses: neighbouring ranks exchange rows for heads. Each then has all rows of their shards together, for some of the
heads. Of key heads that are fewer than ranks, several ranks get the same one, whose gradients are added up at home."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._exchange import Peers, post
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

        members = range(self.width)
        sends = {member: [x[:, :, start:end].contiguous() for x, (start, end) in zip(tensors, ranges(member))]
                 for member in members}
        parts = {member: [x.new_empty((x.shape[0], self.layout.rows(self.rank_of(member)), *x.shape[2:]))
                          for x in sends[self.own]] for member in members}
        self._exchange(sends, parts)
        intervals = self._all_intervals()
        whole = tuple(x.new_empty((x.shape[0], rows_in(intervals), *x.shape[2:])) for x in sends[self.own])
        for member in members:
            for to, x in zip(whole, parts[member]):
                for source, place, rows in self._places(member, intervals):
                    to[:, place:place + rows] = x[:, source:source + rows]
        return whole

    def scatter_rows(self, tensors: tuple[Tensor, ...], are_queries: tuple[bool, ...]) -> tuple[Tensor, ...]:
        """Back: from all rows of this rank's heads to this rank's rows of all heads, the sum of those that several
        ranks have, in their order."""
        members, intervals = range(self.width), self._all_intervals()
        sends = {member: [torch.cat([x[:, place:place + rows] for _, place, rows in self._places(member, intervals)], 1)
                          for x in tensors] for member in members}
        own_rows = self.layout.rows(self.peers.rank)
        ranges = {member: [self.queries(member) if of_queries else self.keys(member) for of_queries in are_queries]
                  for member in members}
        parts = {member: [x.new_empty((x.shape[0], own_rows, end - start, *x.shape[3:]))
                          for x, (start, end) in zip(tensors, ranges[member])] for member in members}
        self._exchange(sends, parts)
        result = tuple(x.new_zeros((x.shape[0], own_rows, self.heads if of_queries else self.kv_heads, *x.shape[3:]))
                       for x, of_queries in zip(tensors, are_queries))
        for member in members:
            for to, x, (start, end) in zip(result, parts[member], ranges[member]):
                to[:, :, start:end] += x
        return result

    def _places(self, member: int, intervals: tuple[Interval, ...]) -> list[tuple[int, int, int]]:
        """Of each interval of a member: its row among the member's, its row among all, how many rows it has."""
        result, before = [], 0
        for part in self.layout.of(self.rank_of(member)):
            rows = part[1] - part[0]
            if rows > 0:
                result.append((before, place_in(intervals, part), rows))
            before += rows
        return result or [(0, 0, 0)]

    def _exchange(self, sends: dict[int, list[Tensor]], parts: dict[int, list[Tensor]]) -> None:
        others = [member for member in range(self.width) if member != self.own]
        messages = post(self.peers, [(self.rank_of(member), x) for member in others for x in sends[member]],
                        [(self.rank_of(member), x) for member in others for x in parts[member]])
        parts[self.own] = sends[self.own]
        messages.wait()
