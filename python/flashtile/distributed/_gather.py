"""All-gather: every rank gets all keys at once, and each of its intervals of queries is one call. In backward each rank
computes dk and dv of all keys in fp32, and every rank adds up those of its own."""

from __future__ import annotations

from functools import partial
from typing import Optional

from torch import Tensor

from ._compute import ApartRows, Gradients, Scores, forward, zeros
from ._exchange import Peers, swap
from ._layout import Interval, Layout
from ._pieces import Rule, pieces_of


def _whole(layout: Layout) -> tuple[Interval, ...]:
    return ((0, layout.seqlen),)


def _rows_of(layout: Layout, rank: int, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """A rank's intervals in whole tensors."""
    return [x[:, start:end] for x in tensors for start, end in layout.of(rank)]


def _rows_of_own(layout: Layout, rank: int, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The same intervals in tensors that have a rank's rows alone."""
    lengths = [end - start for start, end in layout.of(rank)]
    return [part for x in tensors for part in x.split(lengths, 1)]


def gathered(peers: Peers, layout: Layout, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The whole tensors (batch, rows, ..), rows in the sequence's order."""
    own = [x.contiguous() for x in _rows_of_own(layout, peers.rank, tensors)]
    whole = tuple(x.new_empty((x.shape[0], layout.seqlen, *x.shape[2:])) for x in tensors)
    swap(peers, {rank: own for rank in range(peers.size)},
         {rank: _rows_of(layout, rank, whole) for rank in range(peers.size)})
    return whole


def _summed(peers: Peers, layout: Layout, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The sum over ranks, of this rank's rows, in the ranks' order."""
    own = tuple(x.new_zeros((x.shape[0], layout.rows(peers.rank), *x.shape[2:])) for x in tensors)
    swap(peers, {rank: _rows_of(layout, rank, tensors) for rank in range(peers.size)},
         {rank: _rows_of_own(layout, peers.rank, own) for rank in range(peers.size)}, add=True)
    return own


def gather_forward(peers: Peers, layout: Layout, rule: Rule, q: Tensor, k: Tensor, v: Tensor,
                   scores: Scores) -> tuple[Tensor, Tensor]:
    whole = gathered(peers, layout, (k, v))
    rows = ApartRows(q, v.shape[-1])
    for piece in pieces_of(rule, layout.of(peers.rank), _whole(layout)):
        rows.add(piece, *forward(piece, q, *whole, scores))
    return rows.result(q.dtype)


def gather_backward(peers: Peers, layout: Layout, rule: Rule, q: Tensor, k: Tensor, v: Tensor, saved: tuple,
                    scores: Scores) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    whole = gathered(peers, layout, (k, v))
    gradients = Gradients(q, scores.sinks)
    own = gradients.add(pieces_of(rule, layout.of(peers.rank), _whole(layout)), q, *whole, saved, scores,
                        partial(zeros, whole))
    del whole
    dk, dv = _summed(peers, layout, own)
    return gradients.dq, dk, dv, gradients.dsinks
