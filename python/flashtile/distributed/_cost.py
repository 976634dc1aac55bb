"""A model of what context parallelism costs: compute, links, and how much of one hides behind the other.
docs/scale-out.md derives it. strategy="auto" takes the strategy that it finds fastest. Pure Python, and so all ranks find the same."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ._ulysses import splits_heads


class Machine(NamedTuple):
    """Of one device: FLOP/s of attention, forward and backward together; bytes/s that it sends to others, each way;
    seconds that a message takes apart from its bytes; bytes/s of its memory. The defaults are round numbers for an H200
    on NVLink; `measure_link` measures the links of a group."""

    flops: float = 5.5e14
    link: float = 3.5e11
    latency: float = 2e-5
    memory: float = 4e12


class Work(NamedTuple):
    """A problem whose cost is asked for: its whole sequence in tokens, heads, and the width of a head."""

    seqlen: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    batch: int = 1
    element: int = 2  # bytes
    seen: float = 0.5  # the share of all scores that is seen: 0.5 under a causal mask


class Cost(NamedTuple):
    """Seconds of forward and backward on each rank. Of `hidden` as much costs nothing as the rank computes."""

    compute: float  # attention
    folding: float  # adding up what the steps come to, and laying out what is swapped
    hidden: float  # messages beside which the rank computes
    waiting: float  # messages that the rank waits for

    @property
    def seconds(self) -> float:
        return max(self.compute + self.folding, self.hidden) + self.waiting


STRATEGIES = ("all_gather", "ring", "ulysses", "ring+ulysses")
_PASSES = 3.5  # FLOPs of forward and backward, in forward's
# Bytes of memory that an element costs in each step: of out, a part that is written, read, stored in fp32 and merged; of
# dq, a part that is written, read and added in fp32; of dk and dv that, and zeros, and what arrives.
_MERGE, _ADD, _ADD_TWICE = 20, 12, 28
_COPIES = 2  # of what is swapped: it is read and written to be sent, or where it arrives, if it does not lie as it travels


def seen_share(seqlen: int, window: tuple[int, int]) -> float:
    """The share of all scores that a window lets be seen; -1 is open."""
    if seqlen == 0:
        return 0.0

    def beside(side: int) -> float:  # scores on one side of the diagonal
        most = seqlen * (seqlen - 1) / 2
        hidden = seqlen - 1 - side
        return most if side < 0 or hidden <= 0 else most - hidden * (hidden + 1) / 2

    return (seqlen + beside(window[0]) + beside(window[1])) / seqlen**2


def predict(strategy: str, work: Work, ranks: int, machine: Machine = Machine(), *, width: Optional[int] = None,
            balanced: bool = True) -> Cost:
    """What a forward and a backward pass cost each of `ranks` ranks. width: how many share heads in "ring+ulysses".
    balanced: zigzag or no causal mask; otherwise the last rank has up to twice the work."""
    w = work
    width = {"ulysses": ranks, "ring+ulysses": width or best_width(w.heads, w.kv_heads, ranks)}.get(strategy, 1)
    around = ranks // width
    columns = w.head_dim + w.head_dim_v
    flops = 2 * _PASSES * w.batch * w.heads * w.seqlen**2 * columns * w.seen / ranks
    imbalance = 1.0 if balanced else 2 - 1 / around
    compute = flops * imbalance / machine.flops
    rows = w.batch * w.seqlen / ranks  # of a rank
    # Heads for rows: q, k, v and out, then dout, dq, dk and dv; out of which 1 / width stays where it is.
    kv_heads = max(w.kv_heads, width)
    whole = 2 * rows * columns * w.element * (w.heads + kv_heads)
    waiting = whole * (width - 1) / width / machine.link + (4 * machine.latency if width > 1 else 0.0)
    folding = _COPIES * whole / machine.memory if width > 1 else 0.0
    # K and V of a member's shard travel in forward and in backward, dK and dV in fp32 in backward.
    shard = rows * columns * kv_heads
    if around > 1:
        queries = rows * w.heads
        merged, added = queries * w.head_dim_v * _MERGE, queries * w.head_dim * _ADD
        of_queries = added if strategy == "all_gather" else around * (merged + added)  # which are in one call there
        folding += (of_queries + around * shard * _ADD_TWICE) / machine.memory
    if strategy == "all_gather":
        bytes_moved = shard * (around - 1) * (2 * w.element + 4)
        return Cost(compute, folding, 0.0, waiting + bytes_moved / machine.link + 3 * machine.latency)
    steps = around - 1
    hidden = steps * (shard * (2 * w.element + 4) / machine.link + 3 * machine.latency)
    home = (shard * 4 / machine.link + machine.latency) if steps else 0.0
    return Cost(compute, folding, hidden, waiting + home)


def best_width(heads: int, kv_heads: int, ranks: int) -> int:
    """How many ranks share heads in "ring+ulysses": the most, of the divisors of `ranks`, that repeat no key head."""
    return max(width for width in range(1, ranks + 1)
               if ranks % width == 0 and kv_heads % width == 0 and heads % width == 0)


def gathers_little(work: Work, ranks: int) -> bool:
    """Whether K and V of all ranks, with their gradients in fp32, take no more memory than a rank's own rows of q, k, v,
    out and their gradients. Memory is to grow with the rank's own rows."""
    gathered = ranks * work.kv_heads * (work.element + 4)
    return gathered <= 2 * work.element * (work.heads + work.kv_heads)


def choose(work: Work, ranks: int, machine: Machine = Machine(), balanced: bool = True) -> str:
    """The strategy that the model finds fastest among those that the heads allow, and that gather little; the first of
    equals."""
    width = best_width(work.heads, work.kv_heads, ranks)
    possible = [strategy for strategy in STRATEGIES
                if (strategy != "all_gather" or gathers_little(work, ranks))
                and (strategy != "ulysses" or splits_heads(work.heads, work.kv_heads, ranks))
                and (strategy != "ring+ulysses" or 1 < width < ranks)]
    return min(possible, key=lambda strategy: predict(strategy, work, ranks, machine, balanced=balanced).seconds)
