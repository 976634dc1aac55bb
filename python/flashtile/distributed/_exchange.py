"""Messages between the ranks of a group, by torch.distributed (NCCL on GPUs, gloo on CPUs)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import Tensor


class Peers(NamedTuple):
    """The ranks that share a sequence: `size` of them, this one being number `rank` of the group."""

    group: Any
    rank: int
    size: int

    def global_rank(self, rank: int) -> int:
        return dist.get_global_rank(self.group, rank) if self.group is not dist.group.WORLD else rank


class Messages:
    """Messages under way. On a GPU they travel on the stream of the process group, behind what the current stream had
    been given when they were posted, and beside what it is given afterwards. The tensors live until `wait`."""

    def __init__(self, works: list[Any], tensors: list[Tensor]):
        self.works, self.tensors = works, tensors

    def wait(self) -> None:
        """Nothing that the current stream is given from now on starts before the messages have arrived. On the CPU the
        caller waits."""
        for work in self.works:
            work.wait()
        self.works, self.tensors = [], []


def post(peers: Peers, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]) -> Messages:
    """Sends tensors to ranks of the group and receives others, all at once. Both sides name the messages between two
    ranks in the same order. Empty tensors are no messages. What is received must be contiguous."""
    operations, tensors = [], []
    sends = [(rank, tensor.contiguous()) for rank, tensor in sends]
    for function, messages in ((dist.isend, sends), (dist.irecv, receives)):
        for rank, tensor in messages:
            if tensor.numel() > 0:
                operations.append(dist.P2POp(function, tensor, peers.global_rank(rank), peers.group))
                tensors.append(tensor)
    return Messages(dist.batch_isend_irecv(operations) if operations else [], tensors)


def swap(peers: Peers, sends: dict[int, list[Tensor]], into: dict[int, list[Tensor]], add: bool = False) -> None:
    """Sends `sends[rank]` to each rank, this one too, and copies or adds, in the ranks' order, what each of them has sent
    to `into[rank]`. A message is received where it belongs if that is contiguous, as rows of a batch of one are."""
    others = [rank for rank in sends if rank != peers.rank]
    landed = {rank: [x if x.is_contiguous() and not add else torch.empty_like(x, memory_format=torch.contiguous_format)
                     for x in into[rank]] for rank in others}
    messages = post(peers, [(rank, x) for rank in others for x in sends[rank]],
                    [(rank, x) for rank in others for x in landed[rank]])
    landed[peers.rank] = sends[peers.rank]
    if not add:
        _move(landed.pop(peers.rank), into[peers.rank], add)  # beside the messages
    messages.wait()
    for rank in sorted(landed):
        _move(landed.pop(rank), into[rank], add)


def _move(arrived: list[Tensor], into: list[Tensor], add: bool) -> None:
    for x, to in zip(arrived, into):
        if add:
            to += x
        elif x is not to:
            to.copy_(x)


_agreed: set[tuple[Any, str]] = set()
_RIGHT, _WRONG = 0, 1


def has_agreed(peers: Peers, signature: str) -> bool:
    return peers.size == 1 or (peers.group, signature) in _agreed


def agree(peers: Peers, signature: Optional[str], error: Optional[Exception]) -> None:
    """Raises on every rank where one of them has an error, or another signature. Once for each signature: a collective
    of 16 bytes, whose result the host waits for. In the group's first call a rank with an error takes part. Later it
    raises alone, since the others may not be asking, and they get torch.distributed's error after its timeout."""
    first = not any(group is peers.group for group, _ in _agreed)
    if error is not None and (peers.size == 1 or not first):
        raise error
    if error is None and has_agreed(peers, signature or ""):
        return
    digest = int.from_bytes(hashlib.sha256((signature or "").encode()).digest()[:7], "big")
    own = torch.tensor([_RIGHT if error is None else _WRONG, digest])
    if dist.get_backend(peers.group) == "nccl":
        own = own.cuda()
    all_of_them = [torch.empty_like(own) for _ in range(peers.size)]
    dist.all_gather(all_of_them, own, group=peers.group)
    said = torch.stack(all_of_them).tolist()
    if error is not None:
        raise error
    for rank, (status, theirs) in enumerate(said):
        if status == _WRONG:
            raise ValueError(f"rank {rank} of the group has refused its arguments; its own error says why")
        if theirs != digest:
            raise ValueError(f"rank {rank} of the group was called with other sizes or options than this rank, number "
                             f"{peers.rank}, allowed are the same on all; here: {signature}")
    _agreed.add((peers.group, signature or ""))
