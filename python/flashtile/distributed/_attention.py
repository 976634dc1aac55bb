"""flashtile.distributed.context_parallel_attention: checks, the choice of a strategy, and autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor

from .._arguments import blame_an_option, flag
from .._attention import draw
from .._call import DTYPES
from .._library import InvalidArgument
from .._run import innermost
from .._while_tracing import run_between_graphs
from . import _compute, _gather, _ring
from ._compute import Scores
from ._cost import STRATEGIES, Machine, Work, best_width, choose, seen_share
from ._exchange import Peers, agree, has_agreed
from ._layout import LAYOUTS, Layout
from ._pieces import Rule, pieces_of
from ._ulysses import Heads, splits_heads


def peers_of(group: Any) -> Peers:
    """Of a process group, a DeviceMesh of one dimension, or None: all processes."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("torch.distributed is not initialised: call torch.distributed.init_process_group first")
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ValueError(f"group is a DeviceMesh of {group.ndim} dimensions, allowed is one: mesh['name']")
        group = group.get_group()
    group = dist.group.WORLD if group is None else group
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("group is one that this process is not in")
    return Peers(group, rank, dist.get_world_size(group))


class _Plan(NamedTuple):
    """What all calls with the same sizes and options share."""

    peers: Peers
    layout: Layout
    rule: Rule
    strategy: str
    width: int  # ranks that share heads
    heads: int
    kv_heads: int

    def sharing(self) -> Heads:
        return Heads(self.peers, self.layout, self.width, self.heads, self.kv_heads)

    def of_heads(self, scores: Scores) -> Scores:
        start, end = self.sharing().queries(self.peers.rank % self.width)
        return scores._replace(slopes=None if scores.slopes is None else scores.slopes[..., start:end].contiguous(),
                               sinks=None if scores.sinks is None else scores.sinks[start:end], first_head=start)

    def ring(self) -> _ring.Ring:
        return _ring.Ring(self.peers, self.layout, self.width, self.rule)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
        if self.strategy == "all_gather":
            return _gather.gather_forward(self.peers, self.layout, self.rule, q, k, v, scores)
        return _ring.ring_forward(self.ring(), q, k, v, scores)

    def backward(self, q: Tensor, k: Tensor, v: Tensor, saved: tuple, scores: Scores) -> tuple:
        if self.strategy == "all_gather":
            return _gather.gather_backward(self.peers, self.layout, self.rule, q, k, v, saved, scores)
        return _ring.ring_backward(self.ring(), q, k, v, saved, scores)


def _lse_as_rows(lse: Optional[Tensor]) -> Optional[Tensor]:
    """(batch, heads, rows) as (batch, rows, heads, 1)."""
    return None if lse is None else lse.transpose(1, 2).unsqueeze(-1)


class _ContextParallel(torch.autograd.Function):
    """q, k and v are this rank's rows; so are out and lse."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, scores: Scores, q: Tensor, k: Tensor, v: Tensor,  # type: ignore[override]
                sinks: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        scores = scores._replace(sinks=sinks)
        if plan.width > 1:
            scores = plan.of_heads(scores)
            q, k, v = plan.sharing().gather_rows((q, k, v), (True, False, False))
        out, lse = plan.forward(q, k, v, scores)
        ctx.plan, ctx.scores = plan, scores._replace(sinks=None, slopes=None, rng=None)
        ctx.save_for_backward(q, k, v, out, lse, scores.slopes, scores.sinks, scores.rng)
        ctx.set_materialize_grads(False)
        if plan.width > 1:
            out, rows = plan.sharing().scatter_rows((out, _lse_as_rows(lse)), (True, True))
            lse = rows.squeeze(-1).transpose(1, 2)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:  # type: ignore[override]
        q, k, v, out, lse, slopes, sinks, rng = ctx.saved_tensors
        plan, scores = ctx.plan, ctx.scores._replace(slopes=slopes, sinks=sinks, rng=rng)
        if torch.is_grad_enabled():
            _refuse_second_order()
        # Whether there is a dlse is the same on all ranks, as it follows from the program. A dout that is none is zero.
        if dout is None:
            rows = plan.layout.rows(plan.peers.rank) if plan.width > 1 else q.shape[1]
            dout = q.new_zeros((q.shape[0], rows, plan.heads, v.shape[-1]))
        dout = dout.to(q.dtype)
        if plan.width > 1:
            gathered = (dout,) if dlse is None else (dout, _lse_as_rows(dlse))
            dout, *more = plan.sharing().gather_rows(gathered, (True,) * len(gathered))
            dlse = more[0].squeeze(-1).transpose(1, 2).contiguous() if more else None
        dlse = None if dlse is None else innermost(dlse)
        dq, dk, dv, dsinks = plan.backward(q, k, v, (out, lse, innermost(dout), dlse), scores)
        if plan.width > 1:
            del dout, dlse  # the exchange is to find their memory free
            of_sums = (torch.float32,) * 2 if plan.kv_heads < plan.width else (k.dtype, v.dtype)
            dq, dk, dv = dq.to(q.dtype), dk.to(of_sums[0]), dv.to(of_sums[1])
            dq, dk, dv = plan.sharing().scatter_rows((dq, dk, dv), (True, False, False))
            if dsinks is not None:
                start, end = plan.sharing().queries(plan.peers.rank % plan.width)
                whole = dsinks.new_zeros(plan.heads)
                whole[start:end] = dsinks
                dsinks = whole
        return None, None, dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), \
            None if dsinks is None else dsinks.to(sinks.dtype)


def _refuse_second_order() -> NoReturn:
    raise NotImplementedError("flashtile has no gradients of gradients")


def _check_tensors(q: Tensor, k: Tensor, v: Tensor, layout: Layout, rank: int, packed: bool) -> None:
    form = "(rows, heads, head_dim)" if packed else "(batch, rows, heads, head_dim)"
    for x, name in ((q, "q"), (k, "k"), (v, "v")):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, allowed is a torch.Tensor")
        if x.dtype not in DTYPES or not x.is_floating_point() or x.dtype is not q.dtype or x.device != q.device:
            raise TypeError(f"{name} is {x.dtype} on {x.device}, allowed is torch.float32, torch.float16 or "
                            f"torch.bfloat16, and for all three the same, as q's {q.dtype} on {q.device}")
        if x.dim() != (3 if packed else 4):
            raise ValueError(f"{name}.shape is {tuple(x.shape)}, allowed is {form}")
        if x.shape[-3] != layout.rows(rank):
            raise ValueError(f"{name} has {x.shape[-3]} rows, allowed is {layout.rows(rank)}: what rank {rank} of "
                             f"{layout.world} has of {layout.seqlen} in layout {layout.kind!r}")
    if k.shape[-2] != v.shape[-2] or k.shape[:-3] != q.shape[:-3] or v.shape[:-3] != q.shape[:-3]:
        raise ValueError(f"k.shape is {tuple(k.shape)} and v.shape {tuple(v.shape)}, allowed are the same heads, and "
                         f"q's batch, of {tuple(q.shape)}")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k.shape is {tuple(k.shape)}, allowed is q's head_dim, {q.shape[-1]}")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2] != 0:
        raise ValueError(f"q has {q.shape[-2]} heads, allowed is a multiple of k's, which are {k.shape[-2]}")


def _seqlen(q: Any, seqlen: Optional[int], cu_seqlens: Any, world: int) -> tuple[int, Optional[tuple[int, ...]]]:
    if cu_seqlens is not None:
        documents = tuple(cu_seqlens.tolist() if isinstance(cu_seqlens, Tensor) else map(int, cu_seqlens))
        if not documents or documents[0] != 0 or any(b < a for a, b in zip(documents, documents[1:])):
            raise ValueError(f"cu_seqlens is {documents}, allowed are numbers from 0 that never decrease")
        if seqlen is not None and seqlen != documents[-1]:
            raise ValueError(f"seqlen is {seqlen}, allowed is the last of cu_seqlens, {documents[-1]}")
        return documents[-1], documents
    if seqlen is None:
        if not isinstance(q, Tensor) or q.dim() < 3:
            raise TypeError("q is no tensor of 4 dimensions")
        return q.shape[-3] * world, None
    if type(seqlen) is not int or seqlen < 0:
        raise ValueError(f"seqlen is {seqlen!r}, allowed is the length of the whole sequence")
    return seqlen, None


def _strategy(strategy: str, ulysses_size: Optional[int], machine: Machine, work: Work, ranks: int,
              balanced: bool) -> tuple[str, int]:
    """The strategy and how many ranks share heads."""
    if strategy not in (*STRATEGIES, "auto"):
        raise ValueError(f"strategy is {strategy!r}, allowed are 'auto', {', '.join(map(repr, STRATEGIES))}")
    if ulysses_size is not None and strategy != "ring+ulysses":
        raise ValueError(f"ulysses_size is {ulysses_size!r}, allowed is None with strategy {strategy!r}")
    if strategy == "auto":
        strategy = choose(work, ranks, machine, balanced)
    width = {"ulysses": ranks, "ring+ulysses": ulysses_size or best_width(work.heads, work.kv_heads, ranks)}.get(
        strategy, 1)
    if ranks % width != 0:
        raise ValueError(f"ulysses_size is {width}, allowed is a divisor of the group's size, {ranks}")
    if not splits_heads(work.heads, work.kv_heads, width):
        raise ValueError(f"{width} ranks are to share {work.heads} heads on {work.kv_heads} key heads, allowed is as "
                         "many heads for each of them, and of key heads a multiple or a divisor of their number")
    return strategy, width


@run_between_graphs
def context_parallel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: Any = None,
    strategy: str = "auto",
    layout: str = "zigzag",
    seqlen: Optional[int] = None,
    cu_seqlens: Union[Tensor, Sequence[int], None] = None,
    ulysses_size: Optional[int] = None,
    machine: Machine = Machine(),
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    seed: Optional[tuple[int, int]] = None,
    deterministic: bool = False,
    exact_max: bool = False,
    return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Exact self-attention of a sequence whose rows lie on several ranks; every rank of the group calls it.

    Each rank passes its rows of q, k and v, as `shard` gives them, and gets its rows of the result, which is that of
    flashtile.attention on everything, gradients included. Options mean what they mean there.

    Args:
        q: (batch, rows, heads, head_dim), this rank's rows; with cu_seqlens (rows, heads, head_dim). k and v likewise.
        group: a process group, a DeviceMesh of one dimension, or None: all processes.
        strategy: "ring": keys travel from rank to rank. "all_gather": every rank gets all keys. "ulysses": ranks
            exchange rows for heads. "ring+ulysses": `ulysses_size` neighbours exchange heads, and their groups are a
            ring. "auto": what `distributed.predict` finds fastest on `machine`.
        layout: "zigzag", in which all ranks have the same work under a causal mask, or "contiguous".
        seqlen: of the whole sequence. Without it, this rank's rows times the ranks: all have as many.
        cu_seqlens: the documents of a packed batch, whole: (documents + 1) numbers from 0, the last of which is all
            rows. A tensor on a GPU is copied to the host, which waits for it.
        sinks: (heads). Its gradient, as that of any parameter that all ranks have, is the part of this rank's rows.
        dropout_p: the mask is that of one device with the same seed.
        seed: (seed, offset) of dropout, the same on all ranks. Without it rank 0's generator draws them.
        return_lse: also returns lse, fp32 (batch, heads, rows), packed (heads, rows).

    The first call with given sizes and options exchanges 16 bytes, by which all ranks learn whether any has refused its
    arguments. Errors are raised before anything else is sent.
    """
    peers = peers_of(group)
    prepared, error = None, None
    try:
        prepared = _prepare(peers, q, k, v, strategy, layout, seqlen, cu_seqlens, ulysses_size, machine,
                            flag("causal", causal), window, scale, softcap, alibi_slopes, sinks, dropout_p, seed,
                            flag("deterministic", deterministic), flag("exact_max", exact_max),
                            flag("return_lse", return_lse))
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as refused:
        error = refused
    agree(peers, None if prepared is None else prepared[2], error)
    assert prepared is not None
    plan, scores, _, packed = prepared
    if dropout_p != 0.0 and seed is None:
        rng = draw(q)
        dist.broadcast(rng, peers.global_rank(0), group=peers.group)
        scores = scores._replace(rng=rng)
    given = tuple(x[None] for x in (q, k, v)) if packed else (q, k, v)
    out, lse = _ContextParallel.apply(plan, scores, *given, sinks)
    if packed:
        out, lse = out[0], lse[0]
    return (out, lse) if return_lse else out


def _prepare(peers: Peers, q: Tensor, k: Tensor, v: Tensor, strategy: str, kind: str, seqlen: Optional[int],
             cu_seqlens: Any, ulysses_size: Optional[int], machine: Machine, causal: bool, window: Any,
             scale: Optional[float], softcap: float, slopes: Optional[Tensor], sinks: Optional[Tensor],
             dropout_p: float, seed: Any, deterministic: bool, exact_max: bool, return_lse: bool) -> tuple[_Plan, Scores, str, bool]:
    if kind not in LAYOUTS:
        raise ValueError(f"layout is {kind!r}, allowed are {', '.join(map(repr, LAYOUTS))}")
    blame_an_option(align="top-left", window=window, scale=scale, softcap=softcap, dropout_p=dropout_p, causal=causal,
                    max_seqlen_q=None, max_seqlen_k=None, attention_chunk=0, num_splits=0, sm_limit=0, diagonal=0)
    total, documents = _seqlen(q, seqlen, cu_seqlens, peers.size)
    layout = Layout(kind, peers.size, total)
    packed = documents is not None
    _check_tensors(q, k, v, layout, peers.rank, packed)
    if slopes is not None and (slopes.dim() > 1 and packed):
        raise ValueError(f"alibi_slopes.shape is {tuple(slopes.shape)}, allowed with cu_seqlens is (heads)")
    left, right = window
    window = (left, 0 if causal else right)
    batch = 1 if packed else q.shape[0]
    (heads, head_dim), (kv_heads, columns) = q.shape[-2:], v.shape[-2:]
    work = Work(total, heads, kv_heads, head_dim, columns, batch, q.element_size(), seen_share(total, window))
    strategy, width = _strategy(strategy, ulysses_size, machine, work, peers.size,
                                kind == "zigzag" or (window[0] < 0) == (window[1] < 0))
    rng = None
    if dropout_p != 0.0 and seed is not None:
        rng = torch.tensor([_as_int64(number) for number in seed], device=q.device)
        if rng.shape != (2,):
            raise ValueError(f"seed is {seed!r}, allowed is (seed, offset)")
    scores = Scores(slopes, sinks, rng, window, scale, softcap, dropout_p,
                    deterministic or torch.are_deterministic_algorithms_enabled(), exact_max)
    plan = _Plan(peers, layout, Rule(window, documents, dropout_p != 0.0 or slopes is not None), strategy, width, heads,
                 kv_heads)
    # What differs from rank to rank is left out.
    signature = f"{plan._replace(peers=None)} batch={batch} {head_dim}x{columns} {q.dtype} {q.device.type} " \
                f"{scores._replace(slopes=slopes is not None, sinks=sinks is not None, rng=seed)} lse={return_lse}"
    if not has_agreed(peers, signature):
        own = layout.of(peers.rank)
        with torch.no_grad():
            for piece in pieces_of(plan.rule, own, own)[:1]:
                _compute.check(piece, *(x[None] if packed else x for x in (q, k, v)), scores)
    return plan, scores, signature, packed


def _as_int64(number: int) -> int:
    """The same 64 bits with a sign."""
    if type(number) is not int or not 0 <= number < 2**64:
        raise InvalidArgument(f"seed holds {number!r}, allowed are whole numbers from 0 to 2^64 - 1")
    return number - 2**64 if number >= 2**63 else number
