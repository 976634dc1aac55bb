"""Between whole tensors and the rows of each rank, and measuring a group's links."""

from __future__ import annotations

import time
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ._attention import peers_of
from ._cost import Machine
from ._exchange import post
from ._gather import gathered
from ._layout import LAYOUTS, Layout


def _layout(kind: str, world: int, seqlen: int) -> Layout:
    if kind not in LAYOUTS:
        raise ValueError(f"layout is {kind!r}, allowed are {', '.join(map(repr, LAYOUTS))}")
    return Layout(kind, world, seqlen)


def shard(x: Tensor, *, dim: int = 1, group: Any = None, layout: str = "zigzag") -> Tensor:
    """This rank's rows of a tensor that every rank has whole: inputs, positions, labels. `dim` is the sequence's.
    Differentiable; a copy where the layout has two intervals, else a view."""
    peers = peers_of(group)
    parts = [x.narrow(dim, start, end - start)
             for start, end in _layout(layout, peers.size, x.shape[dim]).of(peers.rank)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def unshard(x: Tensor, *, dim: int = 1, group: Any = None, layout: str = "zigzag",
            seqlen: Optional[int] = None) -> Tensor:
    """The whole tensor of the rows that each rank has; every rank of the group calls it. seqlen: of the whole; without
    it, all ranks have as many rows. No gradient."""
    peers = peers_of(group)
    whole = _layout(layout, peers.size, x.shape[dim] * peers.size if seqlen is None else seqlen)
    if x.shape[dim] != whole.rows(peers.rank):
        raise ValueError(f"x has {x.shape[dim]} rows, allowed is {whole.rows(peers.rank)}: what rank {peers.rank} of "
                         f"{peers.size} has of {whole.seqlen} in layout {layout!r}")
    rows = x.detach().movedim(dim, 0)[None]
    return gathered(peers, whole, (rows,))[0][0].movedim(0, dim)


def measure_link(group: Any = None, *, megabytes: int = 64, repeats: int = 5,
                 device: Optional[torch.device] = None) -> Machine:
    """A Machine with the measured rate of this group's links: each rank sends to the next one. A collective call; all
    ranks get the slowest rank's result. On CPUs its rates are the CPUs'."""
    peers = peers_of(group)
    if device is None:
        device = torch.device("cuda" if dist.get_backend(peers.group) == "nccl" else "cpu")
    to, source = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size

    def seconds_of(size: int) -> float:
        sent, received = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
        times = []
        for _ in range(repeats + 1):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            start = time.perf_counter()
            if peers.size > 1:
                post(peers, [(to, sent)], [(source, received)]).wait()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - start)
        slowest = torch.tensor([sorted(times[1:])[repeats // 2]], dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=peers.group)
        return slowest.item()

    small, large = seconds_of(1), seconds_of(megabytes << 20)
    return Machine(link=(megabytes << 20) / max(large - small, 1e-9), latency=small)
