"""Ring: each shard of keys travels once around the ring, from rank to rank. While a rank computes with one shard, it
receives the next. In backward dk and dv of a shard travel one step behind it, in fp32, and home at the end.

The members of the ring may be `width` neighbouring ranks each, which share their heads (_ulysses.py). Then rank
n * width + u of the group sends to the same u of the next member.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Optional

from torch import Tensor

from ._compute import ApartRows, Gradients, MergedRows, Scores, backward, forward, zeros
from ._exchange import Messages, Peers, post
from ._layout import Interval, Layout, rows_in
from ._pieces import Piece, Rule, apart, is_all, pieces_of


class Ring(NamedTuple):
    peers: Peers
    layout: Layout
    width: int
    rule: Rule

    @property
    def size(self) -> int:
        return self.peers.size // self.width

    @property
    def place(self) -> int:
        return self.peers.rank // self.width

    def intervals(self, member: int) -> tuple[Interval, ...]:
        return self.layout.of_neighbours(member * self.width, (member + 1) * self.width)

    def pieces(self, member: int, step: int) -> tuple[Piece, ...]:
        """What a member computes when the shard of the member `step` places before it is there."""
        return pieces_of(self.rule, self.intervals(member), self.intervals((member - step) % self.size))

    def steps(self) -> int:
        """How many there are: behind the last step in which any member sees a key nothing needs to travel."""
        return 1 + max((step for step in range(self.size) for member in range(self.size)
                        if self.pieces(member, step)), default=0)

    def rank_of(self, member: int) -> int:
        return member % self.size * self.width + self.peers.rank % self.width

    def like(self, x: Tensor, member: int) -> Tensor:
        """Memory for a member's shard, of which x is another."""
        batch, _, heads, columns = x.shape
        return x.new_empty((batch, rows_in(self.intervals(member % self.size)), heads, columns))

    def shift(self, tensors: tuple[Tensor, ...], of: int, distance: int = 1) -> tuple[Messages, tuple[Tensor, ...]]:
        """Sends tensors of member `of`'s shard to the member `distance` places on, and receives likewise from the
        member that far back, which has the shard of the member that far before `of`."""
        received = tuple(self.like(x, of - distance) for x in tensors)
        to, source = self.rank_of(self.place + distance), self.rank_of(self.place - distance)
        return post(self.peers, [(to, x) for x in tensors], [(source, x) for x in received]), received


def ring_forward(ring: Ring, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    steps = ring.steps()
    every = [piece for step in range(steps) for piece in ring.pieces(ring.place, step)]
    rows = (ApartRows if apart(every) else MergedRows)(q, v.shape[-1])
    shard = k.contiguous(), v.contiguous()
    for step in range(steps):
        last = step + 1 == steps
        if not last:
            coming, following = ring.shift(shard, ring.place - step)
        for piece in ring.pieces(ring.place, step):
            rows.add(piece, *forward(piece, q, *shard, scores))
        if not last:
            coming.wait()
            shard = following
    return rows.result(q.dtype)


def _arrived(messages: Messages, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    messages.wait()
    return tensors


def ring_backward(ring: Ring, q: Tensor, k: Tensor, v: Tensor, saved: tuple, scores: Scores
                  ) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """dq, dk, dv and dsinks, in fp32 if they are sums. saved: out, lse, dout and dlse."""
    steps = ring.steps()
    if steps == 1 and is_all(ring.pieces(ring.place, 0), q.shape[1], k.shape[1]):
        return backward(*ring.pieces(ring.place, 0), q, k, v, *saved, scores, scores.sinks is not None)
    gradients = Gradients(q, scores.sinks)
    shard = k.contiguous(), v.contiguous()
    returning: Optional[Messages] = None  # dk and dv of the present shard, from the member that had it before
    for step in range(steps):
        last = step + 1 == steps
        if not last:
            coming, following = ring.shift(shard, ring.place - step)
        pieces = ring.pieces(ring.place, step)
        # One piece, as under a causal mask in zigzag, is added to what arrives beside it. Of several the sum is formed
        # first, so that the message has the time of all of them.
        if returning is None or len(pieces) > 1:
            own = gradients.add(pieces, q, *shard, saved, scores, partial(zeros, shard))
            if returning is not None:
                returning.wait()
                for x, added in zip(own, arrived):
                    x += added
        else:
            own = gradients.add(pieces, q, *shard, saved, scores, partial(_arrived, returning, arrived))
        if not last:
            returning, arrived = ring.shift(own, ring.place - step)
            coming.wait()
            shard = following
    if steps > 1:
        home, own = ring.shift(own, ring.place - (steps - 1), ring.size - (steps - 1))
        home.wait()
    return gradients.dq, *own, gradients.dsinks
