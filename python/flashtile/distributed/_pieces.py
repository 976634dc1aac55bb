"""What a rank computes: the pieces of the whole attention problem that its queries and a shard of keys make up. Each
piece is one call of the library, on some rows of each, with the place that it has in the whole problem. Pure Python.

A piece is aligned top-left, and `diagonal` moves it to its place. Two parts of a packed batch that are apart share one
document at most, since a document has no gaps; documents that lie whole, or from their start on, in both parts need no
shift and are one packed call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from ._layout import Interval, rows_in


class Rule(NamedTuple):
    """What of a problem decides on pieces."""

    window: tuple[int, int] = (-1, -1)  # causal is a right side of 0
    documents: Optional[tuple[int, ...]] = None  # cumulative lengths; None: one sequence
    places_count: bool = False  # dropout draws by a score's place, and so documents at other places need other calls


class Piece(NamedTuple):
    q_rows: Interval  # of the rank's own rows
    k_rows: Interval  # of the shard's
    diagonal: int = 0
    origin: tuple[int, int, int] = (0, 0, 0)  # (sequence, i, j), of dropout
    lengths: Optional[tuple[tuple[int, ...], tuple[int, ...]]] = None  # cumulative, of a packed call's queries and keys
    home: bool = False  # its keys are at the places of its queries: it carries the sinks
    all_seen: bool = False  # every query sees every key, and no place counts


@lru_cache(maxsize=4096)
def pieces_of(rule: Rule, queries: tuple[Interval, ...], keys: tuple[Interval, ...]) -> tuple[Piece, ...]:
    """The pieces of these rows of queries and keys, without those in which no query sees a key."""
    found = []
    for n, q in enumerate(queries):
        for m, k in enumerate(keys):
            place = rows_in(queries[:n]), rows_in(keys[:m])
            made = _dense(rule, q, k, *place) if rule.documents is None else _packed(rule, q, k, *place)
            found += [piece for piece in made if _any_seen(rule.window, piece)]
    return tuple(_joined(found))


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _dense(rule: Rule, q: Interval, k: Interval, q_place: int, k_place: int) -> Iterator[Piece]:
    if q[0] < q[1] and k[0] < k[1]:
        yield _piece(rule, (q_place, q_place + q[1] - q[0]), (k_place, k_place + k[1] - k[0]), q[0] - k[0],
                     (0, q[0], k[0]), _contains(k, q))


def _packed(rule: Rule, q: Interval, k: Interval, q_place: int, k_place: int) -> Iterator[Piece]:
    """Neighbouring documents that need no shift go together, all others alone."""
    together: list[tuple[int, Interval, Interval]] = []
    home = _contains(k, q)

    def flush() -> Iterator[Piece]:
        if together:
            first = together[0]
            ends = [(part[1][1] - first[1][0], part[2][1] - first[2][0]) for part in together]
            cu_q, cu_k = ((0, *(end[side] for end in ends)) for side in (0, 1))
            yield Piece((q_place + first[1][0] - q[0], q_place + together[-1][1][1] - q[0]),
                        (k_place + first[2][0] - k[0], k_place + together[-1][2][1] - k[0]), 0, (first[0], 0, 0),
                        (cu_q, cu_k), home)
            together.clear()

    assert rule.documents is not None
    for document, (start, end) in enumerate(zip(rule.documents, rule.documents[1:])):
        own_q, own_k = (max(start, q[0]), min(end, q[1])), (max(start, k[0]), min(end, k[1]))
        if own_q[0] >= own_q[1] or own_k[0] >= own_k[1]:
            continue
        i, j = own_q[0] - start, own_k[0] - start
        if i == j and (i == 0 or not rule.places_count):
            # the numbers of sequences draw, too: a document that is left out ends a group
            if rule.places_count and together and together[-1][0] != document - 1:
                yield from flush()
            together.append((document, own_q, own_k))
            continue
        yield from flush()
        yield _piece(rule, (q_place + own_q[0] - q[0], q_place + own_q[1] - q[0]),
                     (k_place + own_k[0] - k[0], k_place + own_k[1] - k[0]), i - j, (document, i, j), home)
    yield from flush()


def _piece(rule: Rule, q_rows: Interval, k_rows: Interval, diagonal: int, origin: tuple[int, int, int],
           home: bool) -> Piece:
    left, right = rule.window
    last_q, last_k = q_rows[1] - q_rows[0] - 1, k_rows[1] - k_rows[0] - 1
    all_seen = (left < 0 or last_q + diagonal - left <= 0) and (right < 0 or diagonal + right >= last_k)
    return Piece(q_rows, k_rows, diagonal, origin, None, home, all_seen and not rule.places_count)


def _any_seen(window: tuple[int, int], piece: Piece) -> bool:
    if piece.lengths is not None:  # each document has keys where it has queries
        return True
    left, right = window
    last_q, last_k = piece.q_rows[1] - piece.q_rows[0] - 1, piece.k_rows[1] - piece.k_rows[0] - 1
    return (right < 0 or last_q + piece.diagonal + right >= 0) and (left < 0 or piece.diagonal - left <= last_k)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of which everything is seen, and whose rows lie side by side, are one call: zigzag's pairs."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and last.all_seen and piece.all_seen and not last.home and not piece.home:
            if last.k_rows == piece.k_rows and last.q_rows[1] == piece.q_rows[0]:
                result[-1] = last._replace(q_rows=(last.q_rows[0], piece.q_rows[1]))
                continue
            if last.q_rows == piece.q_rows and last.k_rows[1] == piece.k_rows[0]:
                result[-1] = last._replace(k_rows=(last.k_rows[0], piece.k_rows[1]))
                continue
        result.append(piece)
    return result


def apart(pieces: Sequence[Piece]) -> bool:
    """Whether no query is in two pieces, so that nothing needs merging."""
    rows = sorted(piece.q_rows for piece in pieces)
    return all(first[1] <= second[0] for first, second in zip(rows, rows[1:]))


def is_all(pieces: Sequence[Piece], queries: int, keys: int) -> bool:
    """Whether they are one piece that has all of so many rows."""
    return len(pieces) == 1 and (pieces[0].q_rows, pieces[0].k_rows) == ((0, queries), (0, keys))
