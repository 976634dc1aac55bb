"""All-gather: every rank gets all keys at once, and each of its intervals of queries is one call. In backward each rank
computes dk and dv of all keys in fp32, and every rank adds up those of its own."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ._compute import ApartRows, Gradients, Scores, forward
from ._exchange import Peers, post
from ._layout import Interval, Layout
from ._pieces import Rule, pieces_of


def _whole(layout: Layout) -> tuple[Interval, ...]:
    return ((0, layout.seqlen),)


def gathered(peers: Peers, layout: Layout, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The whole tensors (batch, rows, ..), rows in the sequence's order."""
    others = [rank for rank in range(peers.size) if rank != peers.rank]
    own = tuple(x.contiguous() for x in tensors)
    parts = {rank: tuple(x.new_empty((x.shape[0], layout.rows(rank), *x.shape[2:])) for x in own) for rank in others}
    post(peers, [(rank, x) for rank in others for x in own],
         [(rank, x) for rank in others for x in parts[rank]]).wait()
    parts[peers.rank] = own
    whole = tuple(x.new_empty((x.shape[0], layout.seqlen, *x.shape[2:])) for x in own)
    for rank, received in parts.items():
        for to, x in zip(whole, received):
            before = 0
            for start, end in layout.of(rank):
                to[:, start:end] = x[:, before:before + end - start]
                before += end - start
    return whole


def _summed(peers: Peers, layout: Layout, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The sum over ranks, of this rank's rows, in the ranks' order."""
    others = [rank for rank in range(peers.size) if rank != peers.rank]

    def rows_of(x: Tensor, rank: int) -> Tensor:
        return torch.cat([x[:, start:end] for start, end in layout.of(rank)], 1)

    parts = {peers.rank: tuple(rows_of(x, peers.rank) for x in tensors)}
    parts |= {rank: tuple(x.new_empty(x.shape) for x in parts[peers.rank]) for rank in others}
    post(peers, [(rank, rows_of(x, rank)) for rank in others for x in tensors],
         [(rank, x) for rank in others for x in parts[rank]]).wait()
    result = parts[0]
    for rank in range(1, peers.size):
        for to, x in zip(result, parts[rank]):
            to += x
    return result


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
    own = tuple(torch.zeros_like(x, dtype=torch.float32) for x in whole)
    gradients.add(pieces_of(rule, layout.of(peers.rank), _whole(layout)), q, *whole, saved, scores, *own)
    dk, dv = _summed(peers, layout, own)
    return gradients.dq, dk, dv, gradients.dsinks
