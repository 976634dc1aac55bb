"""A process of test_distributed.py: rank, number of processes, folder, share, number of shares. It runs its share of the
checks with the other ranks of that share, and leaves what it has found in the folder. With FLASHTILE_TEST_DEVICE=cuda
rank n has GPU n, and messages go by NCCL."""

import contextlib
import faulthandler
import functools
import os
import random
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import flashtile
from flashtile import distributed as fd
from flashtile._call import dropout_mask
from oracle import assert_close, dense

WAITING = 130  # seconds after which each thread says where it is: less than test_distributed.py waits
STRATEGIES = ("ring", "all_gather", "ulysses", "ring+ulysses", "auto")
DEVICE = os.environ.get("FLASHTILE_TEST_DEVICE", "cpu")
SEED = int(os.environ.get("FLASHTILE_TEST_SEED", random.SystemRandom().randrange(1 << 30)))


class Findings(dict):
    """By the name of a check: how often it ran, and what was wrong."""

    @contextlib.contextmanager
    def about(self, check, what):
        found = self.setdefault(check, {"count": 0, "faults": []})
        found["count"] += 1
        try:
            yield
        except Exception as error:  # another rank's messages must not be left waiting
            found["faults"].append(f"{what}: {type(error).__name__}: {error}")
            # at once, too: where the other ranks wait for this one, no report is ever written
            print(f"{check}: {found['faults'][-1]}", file=sys.stderr, flush=True)


class Case:
    """One problem, with what dense attention says of it in fp64 and in its own dtype."""

    def __init__(self, seed, seqlen, heads, kv_heads, head_dim, columns, dtype=torch.float32, batch=1, documents=None,
                 dropout_p=0.0, slopes=False, sinks=False, with_dlse=False, **options):
        torch.manual_seed(seed)
        self.seqlen, self.documents, self.options, self.with_dlse = seqlen, documents, options, with_dlse
        packed = documents is not None

        def rows(of, width):
            return torch.randn(*(() if packed else (batch,)), seqlen, of, width).to(dtype)

        self.tensors = rows(heads, head_dim), rows(kv_heads, head_dim), rows(kv_heads, columns)
        self.dout = rows(heads, columns)
        self.dlse = torch.randn(*(() if packed else (batch,)), heads, seqlen) if with_dlse else None
        self.more = {"alibi_slopes": torch.rand(heads) if slopes else None, "dropout_p": dropout_p}
        self.sinks = torch.randn(heads) if sinks else None
        self.rng = torch.tensor([seed * 1000003 + 17, 5]) if dropout_p else None
        self.expected, self.standard = self.by_oracle(torch.float64), self.by_oracle(dtype)

    def by_oracle(self, dtype):
        """out, lse, dq, dk, dv, dsinks."""
        leaves = [t.to(dtype).requires_grad_() for t in self.tensors]
        sinks = None if self.sinks is None else self.sinks.double().requires_grad_()
        q, k, v = leaves
        if self.documents is None:
            out, lse = self.dense(q, k, v, 0, sinks)
        else:
            parts = [self.dense(*(t[None, a:b] for t in (q, k, v)), n, sinks)
                     for n, (a, b) in enumerate(zip(self.documents, self.documents[1:])) if b > a]
            out, lse = (torch.cat([part[side][0] for part in parts], side) for side in (0, 1))
        loss = (out * self.dout.to(out.dtype)).sum()
        if self.with_dlse:
            loss = loss + (lse * self.dlse.to(lse.dtype)).sum()
        gradients = torch.autograd.grad(loss, [*leaves, *([] if sinks is None else [sinks])])
        return out.detach(), lse.detach(), *gradients

    def dense(self, q, k, v, first, sinks):
        keep = None
        if self.rng is not None:
            keep = torch.empty(q.shape[0] + first, q.shape[2], q.shape[1], k.shape[1], dtype=torch.bool)
            dropout_mask(self.more["dropout_p"], self.rng, keep)
            keep = keep[first:]
        options = {name: value for name, value in self.options.items() if name not in ("deterministic", "exact_max")}
        out, lse = dense(q, k, v, align="top-left", keep=keep, **self.more, **options)
        if sinks is None:
            return out, lse
        whole = torch.logaddexp(lse.double(), sinks[:, None])  # the sinks take their share of each row
        share = (lse.double() - whole).exp().transpose(1, 2)[..., None]
        return (out.double() * share).to(out.dtype), whole.to(lse.dtype)

    def run(self, group, **how):
        """What this rank has: out, lse, dq, dk, dv, dsinks."""
        layout = how.get("layout", "zigzag")

        def own(t, dim):
            return fd.shard(t, dim=dim, group=group, layout=layout)

        packed = self.documents is not None
        leaves = [own(t, 0 if packed else 1).clone().requires_grad_() for t in self.tensors]
        sinks = None if self.sinks is None else self.sinks.clone().requires_grad_()
        lengths = {"cu_seqlens": self.documents} if packed else {"seqlen": self.seqlen}
        seed = None if self.rng is None else tuple(self.rng.tolist())
        out, lse = fd.context_parallel_attention(*leaves, group=group, return_lse=True, seed=seed, sinks=sinks,
                                                 **lengths, **self.more, **self.options, **how)
        given = [own(self.dout, 0 if packed else 1)]
        outputs = [out]
        if self.with_dlse:
            outputs, given = [out, lse], [*given, own(self.dlse, 1 if packed else 2)]
        gradients = torch.autograd.grad(outputs, [*leaves, *([] if sinks is None else [sinks])], given)
        return out.detach(), lse.detach(), *gradients

    def from_stored_out(self, other):
        """What out's rounding does to dq and dk: D = rowsum(dO * out) is off by so much, and dS = P (dP - D) times a row of
        K or Q with it. Standard attention of a row with one key makes no such error."""
        out = self.expected[0]
        scale = self.options.get("scale") or self.tensors[0].shape[-1]**-0.5
        of_D = (out * self.dout.double()).square().sum(-1).sqrt().max().item() * torch.finfo(self.dout.dtype).eps / 2
        return scale * of_D * other.abs().max().item()

    def compare(self, group, **how):
        layout, packed = how.get("layout", "zigzag"), self.documents is not None
        got = list(self.run(group, **how))
        if self.sinks is not None:  # a parameter that every rank has
            dist.all_reduce(got[5], group=group)
        for n, what in enumerate(("out", "lse", "dq", "dk", "dv", "dsinks")[:len(got)]):
            dim = (0 if packed else 1) + (what == "lse")
            expected, standard = (t[n] if what == "dsinks" else fd.shard(t[n], dim=dim, group=group, layout=layout)
                                  for t in (self.expected, self.standard))
            # Rounding of terms about 1, summed in another order or by way of a stored out, where standard attention
            # may happen to be exact. A sink's terms are those of all rows.
            unit = max(2**-19, torch.finfo(got[0].dtype).eps if got[0].dtype is not torch.float32 else 0.0)
            roundoff = unit * max(1.0, self.expected[n].abs().max().item())
            if what in ("dq", "dk"):
                roundoff += self.from_stored_out(self.tensors[1 if what == "dq" else 0])
            if what == "dsinks":
                roundoff *= max(1.0, self.seqlen**0.5 / 4)
            assert_close(got[n], expected, standard, what, roundoff)


def named_cases():
    causal = {"causal": True}
    return {
        "causal": Case(1, 97, 4, 4, 16, 16, batch=2, **causal),
        "all keys, grouped heads": Case(2, 64, 8, 4, 24, 16, with_dlse=True),
        "bf16": Case(3, 200, 8, 2, 64, 64, torch.bfloat16, **causal),
        "bf16, window": Case(4, 150, 4, 4, 32, 32, torch.bfloat16, window=(21, 0)),
        "a window of both sides": Case(5, 150, 4, 4, 16, 16, window=(30, 11)),
        "dropout": Case(6, 90, 4, 4, 16, 16, dropout_p=0.3, batch=2, **causal),
        "documents": Case(7, 130, 4, 4, 16, 16, documents=(0, 3, 3, 70, 71, 130), with_dlse=True, **causal),
        "documents in bf16, all keys": Case(8, 120, 8, 4, 32, 32, torch.bfloat16, documents=(0, 50, 120)),
        "documents, window and dropout": Case(9, 110, 4, 4, 16, 16, documents=(0, 60, 60, 110), window=(25, 5),
                                              dropout_p=0.4),
        "sinks": Case(10, 80, 4, 4, 16, 16, sinks=True, **causal),
        "documents with sinks": Case(11, 80, 4, 4, 16, 16, sinks=True, documents=(0, 33, 80), **causal),
        "alibi, softcap and scale": Case(12, 77, 4, 4, 16, 16, slopes=True, softcap=3.0, scale=0.4, **causal),
        "one key head": Case(13, 70, 8, 1, 16, 24, **causal),
        "fewer rows than parts": Case(14, 5, 4, 4, 16, 16, **causal),
        "documents shorter than parts": Case(15, 24, 4, 4, 16, 16, documents=tuple(range(0, 25, 2)), **causal),
        "fp16, deterministic, exact": Case(16, 100, 4, 2, 32, 32, torch.float16, deterministic=True, exact_max=True,
                                           **causal),
    }


def random_cases(seed, count):
    choose = random.Random(seed)
    for n in range(count):
        seqlen = choose.choice((choose.randrange(1, 40), choose.randrange(1, 300)))
        kv_heads = choose.choice((1, 2, 4, 12))
        documents = None
        if choose.random() < 0.5:
            documents = (0, *sorted(choose.randrange(seqlen + 1) for _ in range(choose.randrange(6))), seqlen)
        yield Case(seed + n, seqlen, kv_heads * choose.choice((1, 2, 4)), kv_heads, choose.choice((8, 16, 40)),
                   choose.choice((8, 16, 40)), choose.choice((torch.float32, torch.bfloat16)), choose.choice((1, 2)),
                   documents, choose.choice((0.0, 0.0, 0.25)), choose.random() < 0.2, choose.random() < 0.2,
                   choose.random() < 0.3, causal=choose.random() < 0.5,
                   window=(choose.choice((-1, -1, choose.randrange(60))), choose.choice((-1, choose.randrange(40)))),
                   softcap=choose.choice((0.0, 0.0, 5.0))), choose.choice(STRATEGIES), \
            choose.choice(("zigzag", "contiguous"))


def fits(case, strategy, size):
    heads, kv_heads = (t.shape[-2] for t in case.tensors[:2])
    return strategy != "ulysses" or (heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0))


def raised(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def check_errors(found, group, rank, size):
    """Each is raised before anything is sent, on all ranks that have its cause; in a group's first call on all."""
    fresh = dist.new_group(list(range(size)))
    q = torch.randn(1, 8, 4, 16)
    wrong = q[:, :7] if rank == 1 else q
    said = raised(fd.context_parallel_attention, wrong, wrong, wrong, group=fresh, seqlen=8 * size)
    with found.about("errors", "one rank's rows"):
        assert ("has 7 rows, allowed is 8" in said) if rank == 1 else ("rank 1 of the group has refused" in said), said
    said = raised(fd.context_parallel_attention, q, q, q, group=fresh, softcap=float(1 + (rank == size - 1)))
    with found.about("errors", "one rank's options"):
        assert "other sizes or options" in said, said
    long = torch.randn(1, 8, 3, 16)
    for what, expected, arguments, options in (
            ("strategy", "strategy is 'rings'", (q, q, q), {"strategy": "rings"}),
            ("layout", "layout is 'zagzig'", (q, q, q), {"layout": "zagzig"}),
            ("heads", f"{size} ranks are to share 3 heads", (long,) * 3, {"strategy": "ulysses"}),
            ("heads of k", "q has 4 heads, allowed is a multiple", (q, long, long), {}),
            ("dtype", "k is torch.float64", (q, q.double(), q), {}),
            ("softcap", "softcap is", (q, q, q), {"softcap": -1.0}),
            ("window", "window is", (q, q, q), {"window": (-3, 0)}),
            ("a flag", "causal is 'no'", (q, q, q), {"causal": "no"}),
            ("dropout", "dropout_p is", (q, q, q), {"dropout_p": 1.5}),
            ("seed", "seed holds -1", (q, q, q), {"dropout_p": 0.5, "seed": (-1, 0)}),
            ("documents", "cu_seqlens is", (q[0],) * 3, {"cu_seqlens": (1, 8 * size)}),
            ("ulysses_size", "ulysses_size is 3", (q, q, q), {"strategy": "ring+ulysses", "ulysses_size": 3}),
            ("rows", "has 8 rows, allowed is", (q, q, q), {"seqlen": 100})):
        said = raised(fd.context_parallel_attention, *arguments, group=group, **options)
        with found.about("errors", what):
            assert expected in said, said
    with found.about("errors", "a group of others"):
        others = dist.new_group([0])
        if rank > 0:
            assert "not in" in raised(fd.context_parallel_attention, q, q, q, group=others)


def check_a_missing_rank(found, rank, size):
    """The others get an error when the group's timeout is over; none waits for ever."""
    q = torch.randn(1, 8, 4, 16)
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=3))
    dist.barrier()
    fd.context_parallel_attention(q, q, q, group=group, strategy="ring")
    said = "" if rank == 0 else raised(fd.context_parallel_attention, q, q, q, group=group, strategy="ring")
    with found.about("errors", "a missing rank"):
        assert rank == 0 or said.startswith(("RuntimeError", "DistBackendError")), said


def check_around(found, rank, size):
    """What PyTorch puts around a call: checkpointing, compiled code, FSDP2, a DeviceMesh, its own generator."""
    case = Case(40, 64, 4, 4, 16, 16, causal=True, dropout_p=0.2)
    case.rng = None

    def run(strategy="ring", around=lambda f: f, **how):
        leaves = [fd.shard(t).clone().requires_grad_() for t in case.tensors]

        def attend(q, k, v):
            return fd.context_parallel_attention(q * 1.0, k, v, strategy=strategy, causal=True, **how) * 2.0

        torch.manual_seed(11 + rank)  # rank 0 draws
        out = around(attend)(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, fd.shard(case.dout))

    def same(got, expected):
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

    def checkpointed(function):
        return lambda *x: torch.utils.checkpoint.checkpoint(function, *x, use_reentrant=False)

    import torch.utils.checkpoint
    plain = run(dropout_p=0.2)
    with found.about("around", "checkpointing"):
        same(run(dropout_p=0.2, around=checkpointed), plain)
    with found.about("around", "the same mask with every strategy"):
        for strategy in STRATEGIES[1:]:
            same(run(strategy, dropout_p=0.2), plain)
    with found.about("around", "the mask of one device"):
        torch.manual_seed(11)
        q, k, v = case.tensors
        same([2 * fd.shard(flashtile.attention(q, k, v, causal=True, dropout_p=0.2))], plain[:1])
    with found.about("around", "a mesh"):
        mesh = dist.device_mesh.init_device_mesh(DEVICE, (size // 2, 2), mesh_dim_names=("data", "sequence"))
        part = case.tensors[0][:, :32]
        leaves = [fd.shard(part, group=mesh["sequence"])] * 3
        got = fd.context_parallel_attention(*leaves, group=mesh["sequence"])
        same([got], [fd.shard(flashtile.attention(part, part, part), group=mesh["sequence"])])
        assert "DeviceMesh of 2 dimensions" in raised(fd.context_parallel_attention, *leaves, group=mesh)
    with found.about("around", "FSDP2"):
        from torch.distributed.fsdp import fully_shard

        class Attention(torch.nn.Module):
            def __init__(self, attend):
                super().__init__()
                torch.manual_seed(3)
                self.attend, self.rows = attend, torch.nn.Linear(32, 96)

            def forward(self, x):
                q, k, v = (t.unflatten(-1, (4, 8)) for t in self.rows(x).chunk(3, -1))
                return self.attend(q, k, v, causal=True).square().mean()

        whole, x = Attention(flashtile.attention), torch.randn(2, 64, 32)
        whole(x).backward()
        sharded = Attention(fd.context_parallel_attention)
        fully_shard(sharded, mesh=dist.device_mesh.init_device_mesh(DEVICE, (size,)))
        sharded(fd.shard(x)).backward()
        same([p.grad.full_tensor() for p in sharded.parameters()], [p.grad for p in whole.parameters()])
    with found.about("around", "compiled code"):
        same(run(around=lambda f: torch.compile(f, backend="eager")), run())


def check_case(found, groups, at, name, case):
    """Each strategy on all processes, in one layout or the other; another one on each of the other groups."""
    runs = [*((n, groups[0]) for n in range(len(STRATEGIES))), *((at % 4, group) for group in groups[1:])]
    for n, group in runs:
        strategy, layout = STRATEGIES[n], ("zigzag", "contiguous")[(at + n + (group is groups[0])) % 2]
        if not fits(case, strategy, dist.get_world_size(group)):
            continue
        with found.about("cases", f"{name}, {strategy}, {layout}, {dist.get_world_size(group)} ranks"):
            case.compare(group, strategy=strategy, layout=layout)


def check_random(found, size, n, case, strategy, layout):
    if fits(case, strategy, size):
        with found.about("random", f"{n}, {strategy}, {layout}, {case.options}, {case.documents}"):
            case.compare(dist.group.WORLD, strategy=strategy, layout=layout)


def check_repeats(found, case):
    with found.about("repeats", "bit for bit"):
        for strategy in STRATEGIES:
            first, second = (case.run(None, strategy=strategy) for _ in range(2))
            assert all(torch.equal(a, b) for a, b in zip(first, second)), strategy


def check_shards(found):
    for layout, seqlen, dim in (("zigzag", 37, 1), ("contiguous", 2, 1), ("zigzag", 16, 0)):
        with found.about("shards", f"{layout}, {seqlen}, {dim}"):
            whole = torch.arange(3 * seqlen * 2).reshape((3, seqlen, 2) if dim == 1 else (seqlen, 3, 2))
            own = fd.shard(whole, dim=dim, layout=layout)
            assert torch.equal(fd.unshard(own, dim=dim, layout=layout, seqlen=seqlen), whole)
    with found.about("shards", "links"):
        machine = fd.measure_link(megabytes=1, repeats=2)
        assert machine.link > 0 and machine.latency > 0


def main():
    rank, size, folder, share, shares = (f(x) for f, x in zip((int, int, str, int, int), sys.argv[1:]))
    faulthandler.dump_traceback_later(WAITING)
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", init_method=f"file://{folder}/store{share}",
                            rank=rank, world_size=size, timeout=timedelta(seconds=60))
    drawn = [SEED]
    dist.broadcast_object_list(drawn)
    seed, found = drawn[0], Findings()
    if rank == 0:
        print(f"FLASHTILE_TEST_SEED={seed}", flush=True)
    parts = [ranks for ranks in ((0, 1, 2), (2, 3), (1,)) if max(ranks) < size]
    groups = [dist.group.WORLD, *map(dist.new_group, parts)]
    groups = [group for group in groups if dist.get_rank(group) >= 0]
    cases = named_cases()
    checks = [functools.partial(check_case, found, groups, at, *named) for at, named in enumerate(cases.items())]
    checks += [functools.partial(check_random, found, size, n, *drawn)
               for n, drawn in enumerate(random_cases(seed, 20))]
    checks += [functools.partial(check_repeats, found, cases["fp16, deterministic, exact"]),
               functools.partial(check_shards, found),
               functools.partial(check_errors, found, dist.group.WORLD, rank, size),
               functools.partial(check_around, found, rank, size)]
    if DEVICE != "cuda":  # NCCL's watchdog ends the process
        checks.append(functools.partial(check_a_missing_rank, found, rank, size))
    for check in checks[share::shares]:
        check()
    found_at = {"device": str(torch.empty(0).device), "backend": dist.get_backend()}
    torch.save({**found, **found_at, "seed": seed}, f"{folder}/found{rank}of{share}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads may outlive the interpreter, and then end the process by std::terminate


main()
