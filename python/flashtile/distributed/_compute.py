"""Runs pieces on the library, forward and backward. Tensors are (batch, rows, heads, head_dim), lse (batch, heads,
rows); of a packed batch, batch is 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .._call import Call
from .._merge import _FUNCTION as MERGE
from .._one_call import call
from .._options import CallOptions, Recipe
from .._run import calls_of, complete, results, usable
from .._structs import ONE_FOR_ALL
from ._pieces import Piece


class Scores(NamedTuple):
    """What a score and a probability are made of, the same in every piece."""

    slopes: Optional[Tensor] = None
    sinks: Optional[Tensor] = None
    rng: Optional[Tensor] = None  # dropout's seed and offset
    window: tuple[int, int] = (-1, -1)
    scale: Optional[float] = None
    softcap: float = 0.0
    dropout: float = 0.0
    deterministic: bool = False
    exact_max: bool = False
    first_head: int = 0  # of these among all heads


def _recipe(piece: Piece, scores: Scores) -> Recipe:
    window, diagonal = ((-1, -1), 0) if piece.all_seen else (scores.window, piece.diagonal)
    longest = [max(b - a for a, b in zip(cu, cu[1:])) for cu in piece.lengths] if piece.lengths else (-1, -1)
    b, i, j = piece.origin if scores.dropout else (0, 0, 0)
    head = scores.first_head if scores.dropout else 0
    return (CallOptions, *longest, 0, 1, scores.scale, scores.softcap, *window, scores.dropout, scores.deterministic,
            False, scores.exact_max, 0, 0, 0, diagonal, b, head, i, j)


@lru_cache(maxsize=1024)
def _cumulative(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(lengths, dtype=torch.int32, device=device)


def _rows(x: Optional[Tensor], rows: tuple[int, int], piece: Piece) -> Optional[Tensor]:
    if x is None:
        return None
    x = x[:, rows[0]:rows[1]]
    return x[0] if piece.lengths else x


def _rows_of_lse(x: Optional[Tensor], piece: Piece) -> Optional[Tensor]:
    if x is None:
        return None
    x = x[:, :, piece.q_rows[0]:piece.q_rows[1]]
    return x[0] if piece.lengths else x


def _inputs(piece: Piece, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> tuple:
    cu_q, cu_k = (_cumulative(cu, q.device) for cu in piece.lengths) if piece.lengths else (None, None)
    return (_rows(q, piece.q_rows, piece), _rows(k, piece.k_rows, piece), _rows(v, piece.k_rows, piece), scores.slopes,
            None, None, cu_q, cu_k, None, scores.sinks if piece.home else None, *ONE_FOR_ALL)


def check(piece: Piece, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> None:
    """Raises what the library says against a piece; runs nothing."""
    given = usable(complete(_inputs(piece, q, k, v, scores)))
    function, *options = _recipe(piece, scores)
    Call("forward", given, results(given), function(*options)).workspace()


def forward(piece: Piece, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    """out and lse of the piece's queries."""
    given = _inputs(piece, q, k, v, scores)
    out, lse = calls_of("forward", given, _recipe(piece, scores), True).run(given, scores.rng)
    return (out[None], lse[None]) if piece.lengths else (out, lse)


def backward(piece: Piece, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor,
             dlse: Optional[Tensor], scores: Scores, want_dsinks: bool) -> tuple[Tensor, ...]:
    """dq, dk and dv that the piece adds, and dsinks. out, lse and dlse are those of whole rows."""
    given = (*_inputs(piece, q, k, v, scores), _rows(out, piece.q_rows, piece), _rows_of_lse(lse, piece),
             _rows(dout, piece.q_rows, piece), _rows_of_lse(dlse, piece))
    want = (False, want_dsinks and piece.home)
    dq, dk, dv, _, dsinks = calls_of("backward", given, _recipe(piece, scores), want).run(given, scores.rng)
    return *((x[None] for x in (dq, dk, dv)) if piece.lengths else (dq, dk, dv)), dsinks


class MergedRows:
    """out and lse of all queries, merged from pieces: part 0 is what has been merged so far, in fp32."""

    def __init__(self, q: Tensor, columns: int):
        batch, rows, heads, _ = q.shape
        self.outs = q.new_empty((2, batch, rows, heads, columns), dtype=torch.float32)
        self.lses = q.new_empty((2, batch, heads, rows), dtype=torch.float32)
        self.lses[0].fill_(float("-inf"))

    def add(self, piece: Piece, out: Tensor, lse: Tensor) -> None:
        start, end = piece.q_rows
        outs, lses = self.outs[:, :, start:end], self.lses[..., start:end]
        outs[1].copy_(out)
        lses[1].copy_(lse)
        call(MERGE, (outs, lses, outs[0], lses[0]))

    def result(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.outs[0].to(dtype), self.lses[0]


class ApartRows:
    """The same where no query is in two pieces: nothing is merged."""

    def __init__(self, q: Tensor, columns: int):
        batch, rows, heads, _ = q.shape
        self.out = q.new_empty((batch, rows, heads, columns))
        self.lse = q.new_empty((batch, heads, rows), dtype=torch.float32)

    def add(self, piece: Piece, out: Tensor, lse: Tensor) -> None:
        start, end = piece.q_rows
        if end - start == self.out.shape[1]:
            self.out, self.lse = out, lse
        else:
            self.out[:, start:end], self.lse[..., start:end] = out, lse

    def result(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.out, self.lse


def zeros(shards: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Sums of gradients of these, empty so far."""
    return tuple(torch.zeros_like(x, dtype=torch.float32, memory_format=torch.contiguous_format) for x in shards)


class Gradients:
    """What pieces add up to in fp32: dq of the rank's queries, and dsinks."""

    def __init__(self, q: Tensor, sinks: Optional[Tensor]):
        self.dq = torch.zeros_like(q, dtype=torch.float32, memory_format=torch.contiguous_format)
        self.dsinks = None if sinks is None else torch.zeros_like(sinks, dtype=torch.float32)

    def add(self, pieces: Sequence[Piece], q: Tensor, k: Tensor, v: Tensor, saved: tuple, scores: Scores,
            sums: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """saved: out, lse, dout and dlse. Adds dk and dv, of all of k's and v's rows, to what `sums` returns, and returns
        that. `sums` is called once, after the first piece's kernels."""
        added_to: tuple[Tensor, ...] = ()
        for piece in pieces:
            *parts, part_sinks = backward(piece, q, k, v, *saved, scores, self.dsinks is not None)
            added_to = added_to or sums()
            for x, rows, part in zip((self.dq, *added_to), (piece.q_rows, piece.k_rows, piece.k_rows), parts):
                x[:, slice(*rows)] += part
            if part_sinks is not None:
                assert self.dsinks is not None
                self.dsinks += part_sinks
            del parts, part  # before the next piece's are there
        return added_to or sums()
