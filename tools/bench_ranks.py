"""Times flashtile.distributed on the processes that torchrun starts, forward and backward, beside one device on as many
FLOPs as each of them has: the same length with 1 / ranks of the heads.

    torchrun --nproc-per-node=4 tools/bench_ranks.py --json=RESULT.json
    torchrun --nproc-per-node=2 tools/bench_ranks.py --tokens=16384,65536 --strategies=ring,ulysses --heads=32/32,32/8
    torchrun --nproc-per-node=2 tools/bench_ranks.py --strategies=auto --against=ring_flash_attn,torch

--against names peers, which are timed in turns with flashtile on the same GPUs: ring_flash_attn, the package
ring-flash-attn (zigzag), which runs here on flashtile in flash-attn's place; torch, PyTorch's context_parallel with
cuDNN's attention, or with FlashAttention where that does not run. Both have zigzag's rows. One that fails gets a row
that says so.

Of each point: milliseconds of the slowest rank (median of the rounds after the first), the share of `ranks` times one
device's rate, and what the model of docs/scale-out.md says of both, given the rate that one device was measured at;
the most memory that a call took on a rank beyond its inputs, how much of that is beyond what one device takes for as
much work, and what the table of docs/scale-out.md says of that. --link measures the group's links first and gives them to the model.
--sample=ROWS compares so many random rows of each rank's out, dq, dk and dv with attention in fp64: the length of the
difference over that of the rows. The JSON is written after every round.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import statistics
import sys
import time
import types
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashtile
from flashtile import distributed as fd

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ALONE = "one device"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="16384,65536,262144")
    parser.add_argument("--strategies", default="ring,all_gather,ulysses")
    parser.add_argument("--against", default="", help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--layout", default="zigzag", choices=("zigzag", "contiguous"))
    parser.add_argument("--heads", default="32/8", help="query heads / key heads; several with commas")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--repeats", type=int, default=5, help="rounds after the first; 0 reports the first")
    parser.add_argument("--seconds", type=float, default=60, help="for the rounds of a point; one is always run")
    parser.add_argument("--no-one-device", action="store_true", help="times nothing on one device")
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.against = [name for name in args.against.split(",") if name]
    for name in args.against:
        if name not in PEERS:
            parser.error(f"--against={name}: allowed are {', '.join(PEERS)}")
    if args.against and args.layout != "zigzag":
        parser.error("--against: allowed with --layout=zigzag only")
    return args


def everywhere(fine):
    """Whether it is on all ranks."""
    all_fine = torch.tensor(int(fine), device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(all_fine, dist.ReduceOp.MIN)
    return bool(all_fine)


class Candidate:
    """Some attention and its tensors, (batch, rows, heads, head_dim), or heads first."""

    def __init__(self, attention, tensors, dout, heads_first=False):
        def own(t):
            return t.detach().transpose(1, 2).contiguous() if heads_first else t.detach()

        self.attention, self.heads_first, self.dout = attention, heads_first, own(dout)
        self.tensors = [own(t).requires_grad_() for t in tensors]
        self.times, self.point = [], {}

    def run(self):
        """out, dq, dk and dv."""
        out = self.attention(*self.tensors)
        results = out.detach(), *torch.autograd.grad(out, self.tensors, self.dout)
        return tuple(x.transpose(1, 2) for x in results) if self.heads_first else results

    def ms(self):
        return 1e3 * statistics.median(self.times[1:] or self.times)


def ring_flash_attn(tensors, dout, seqlen, stack):
    flashtile.install_as_flash_attn()
    adapters = types.ModuleType("ring_flash_attn.adapters")  # are for old versions of transformers, and not needed
    adapters.__getattr__ = lambda name: None
    sys.modules["ring_flash_attn.adapters"] = adapters
    from ring_flash_attn import zigzag_ring_flash_attn_func
    return "ring_flash_attn", Candidate(functools.partial(zigzag_ring_flash_attn_func, causal=True), tensors, dout)


def of_pytorch(backend, repeat_keys, q, k, v):
    group = q.shape[1] // k.shape[1]
    if repeat_keys:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1 and not repeat_keys)


def pytorch(tensors, dout, seqlen, stack):
    """The first of PyTorch's ways that runs on short pieces of the tensors."""
    from torch.distributed.tensor.experimental import context_parallel
    whole = torch.empty(1, seqlen, device=dout.device)  # it wants one to shard
    mesh = dist.init_device_mesh(dout.device.type, (dist.get_world_size(),))
    stack.enter_context(context_parallel(mesh, buffers=[whole], buffer_seq_dims=[1], no_restore_buffers={whole}))
    errors = []
    for backend, repeat_keys in itertools.product((SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION), (False, True)):
        name = f"torch {backend.name.removesuffix('_ATTENTION').lower()}{', keys repeated' if repeat_keys else ''}"
        attention, error = functools.partial(of_pytorch, backend, repeat_keys), None
        try:
            Candidate(attention, [t[:, :256] for t in tensors], dout[:, :256], heads_first=True).run()
        except Exception as raised:
            error = str(raised).splitlines()[0]
        if everywhere(error is None):
            return name, Candidate(attention, tensors, dout, heads_first=True)
        errors.append(f"{name}: {error}")
    raise RuntimeError("; ".join(errors))


PEERS = {"ring_flash_attn": ring_flash_attn, "torch": pytorch}


def leaves(rows, heads, kv_heads, args, device):
    """q, k, v and dout."""
    return [torch.randn(1, rows, h, args.head_dim, device=device).to(DTYPES[args.dtype])
            for h in (heads, kv_heads, kv_heads, heads)]


class Reference:
    """Random rows of this rank's out, dq, dk and dv by attention in fp64 with what all ranks have. Gradients of keys
    take the lse and out of all queries from flashtile."""

    def __init__(self, tensors, dout, seqlen, args):
        out, lse = fd.context_parallel_attention(*tensors, causal=True, layout=args.layout, seqlen=seqlen,
                                                 return_lse=True)
        q, k, v, out, dout = (fd.unshard(t, layout=args.layout, seqlen=seqlen)[0] for t in (*tensors, out, dout))
        lse = fd.unshard(lse, dim=2, layout=args.layout, seqlen=seqlen)[0]
        scale, group, every = args.head_dim**-0.5, q.shape[1] // k.shape[1], torch.arange(seqlen, device=q.device)
        self.rows = torch.randint(tensors[0].shape[1], (args.sample,), device=q.device)
        own = fd.shard(every, dim=0, layout=args.layout)[self.rows]
        of_heads = []
        for head in range(k.shape[1]):
            queries = slice(head * group, (head + 1) * group)
            qs, outs, douts = (x[:, queries].double() for x in (q, out, dout))
            ks, vs = (x[:, head].double() for x in (k, v))
            p = (scale * qs[own] @ ks.mT).masked_fill(every > own[:, None, None], float("-inf")).softmax(-1)
            dp = douts[own] @ vs.mT
            ds = p * (dp - (p * dp).sum(-1, keepdim=True))
            rows = p @ vs, scale * ds @ ks
            p = (scale * qs @ ks[own].mT - lse[queries].mT.double()[..., None]).exp()
            p = p.masked_fill(every[:, None, None] < own, 0.0).flatten(0, 1)
            ds = p * ((douts @ vs[own].mT).flatten(0, 1) - (douts * outs).sum(-1).flatten()[:, None])
            of_heads.append((*rows, (scale * ds.mT @ qs.flatten(0, 1))[:, None], (p.mT @ douts.flatten(0, 1))[:, None]))
        self.expected = [torch.cat(heads, 1) for heads in zip(*of_heads)]

    def errors(self, results):
        squares = torch.stack([torch.stack(((got[0, self.rows].double() - expected).square().sum(),
                                            expected.square().sum()))
                               for got, expected in zip(results, self.expected)])
        dist.all_reduce(squares)
        return dict(zip(("out", "dq", "dk", "dv"), (squares[:, 0] / squares[:, 1]).sqrt().tolist()))


def allowed_memory(strategy, work, ranks):
    """Bytes beyond what one device takes for as much work, by the table of docs/scale-out.md: 16 bits, a causal mask,
    zigzag."""
    queries = 2 * work.seqlen / ranks * work.heads * work.head_dim
    keys = 2 * work.seqlen / ranks * work.kv_heads * (work.head_dim + work.head_dim_v)
    return {"all_gather": (4 * ranks - 1) * keys + queries / 2,
            "ring": (4.5 if ranks == 2 else 5.5) * keys + 2 * queries,
            "ulysses": max(3 * queries + keys, (2 - 1 / ranks) * (queries + keys) + keys)}.get(strategy)


class Point:
    """What is measured of one length and number of heads."""

    def __init__(self, seqlen, heads, args, machine, device):
        self.seqlen, self.heads, self.args, self.machine, self.device = seqlen, heads, args, machine, device
        self.ranks, self.failed = dist.get_world_size(), {}

    def measure(self, record):
        """Calls `record` after each round."""
        args, on_gpu = self.args, self.device.type == "cuda"
        heads, kv_heads = map(int, self.heads.split("/"))
        rows = len(fd.shard(torch.empty(self.seqlen, device="meta"), dim=0, layout=args.layout))
        self.work = fd.Work(self.seqlen, heads, kv_heads, args.head_dim, args.head_dim, 1, DTYPES[args.dtype].itemsize)
        *tensors, dout = leaves(rows, heads, kv_heads, args, self.device)
        self.candidates = {}
        if not args.no_one_device:
            *alone, dout_alone = leaves(self.seqlen, heads // self.ranks, kv_heads // self.ranks, args, self.device)
            self.candidates[ALONE] = Candidate(functools.partial(flashtile.attention, causal=True), alone, dout_alone)
        for strategy in args.strategies.split(","):
            attention = functools.partial(fd.context_parallel_attention, causal=True, strategy=strategy,
                                          layout=args.layout, seqlen=self.seqlen, machine=self.machine)
            self.candidates[strategy] = Candidate(attention, tensors, dout)
        reference = Reference(tensors, dout, self.seqlen, args) if args.sample else None
        with contextlib.ExitStack() as stack:
            for peer in args.against:
                with self.faults_of(peer):
                    name, candidate = PEERS[peer](tensors, dout, self.seqlen, stack)
                    self.candidates[name] = candidate
            for name, candidate in list(self.candidates.items()):
                if on_gpu:
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                with self.faults_of(name):
                    results = self.timed(candidate)
                    if on_gpu:
                        candidate.point["mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
                    if reference and name != ALONE:
                        candidate.point["errors"] = reference.errors(results)
                    del results
            self.candidates = {name: it for name, it in self.candidates.items() if name not in self.failed}
            self.reduce()
            record(self.rows())
            spent = 0.0
            for _ in range(args.repeats):
                for candidate in self.candidates.values():
                    self.timed(candidate)
                self.reduce()
                record(self.rows())
                spent += sum(candidate.times[-1] for candidate in self.candidates.values())
                if spent * (1 + 1 / (len(candidate.times) - 1)) > args.seconds:
                    break

    @contextlib.contextmanager
    def faults_of(self, name):
        """An error on any rank is noted on all, and ends nothing but this candidate."""
        error = None
        try:
            yield
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:500]
        if not everywhere(error is None):
            self.failed[name] = error or "another rank failed"

    def timed(self, candidate):
        dist.barrier()
        start = self.now()
        results = candidate.run()
        candidate.times.append(self.now() - start)
        return results

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def reduce(self):
        """The last round's times become those of the slowest rank, as all begin together; and the memory the most."""
        for candidate in self.candidates.values():
            most = torch.tensor([candidate.times[-1], candidate.point.get("mib", 0.0)], dtype=torch.float64,
                                device=self.device)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            candidate.times[-1], mib = most.tolist()
            if "mib" in candidate.point:
                candidate.point["mib"] = mib

    def rows(self):
        """A row of each candidate. One device's figures are missing where it has not run; the model then has a rate of
        its own."""
        alone, args = self.candidates.get(ALONE), self.args
        linear = fd.predict("ring", self.work, 1, self.machine).seconds / self.ranks
        machine = self.machine._replace(flops=self.machine.flops * linear / (alone.ms() / 1e3)) if alone else self.machine
        same = {"tokens": self.seqlen, "heads": self.heads, "ranks": self.ranks, "layout": args.layout,
                "head_dim": args.head_dim, "dtype": args.dtype}
        rows = [same | {"strategy": name, "error": error} for name, error in self.failed.items()]
        for name, candidate in self.candidates.items():
            row = same | {"strategy": name, "ms": candidate.ms(), "seconds": candidate.times, **candidate.point,
                          "tflops_per_device": self.machine.flops * linear / candidate.ms() / 1e9}
            if alone and name != ALONE:
                row["share"] = alone.ms() / candidate.ms()
                if "mib" in row:
                    row["mib_beyond_one_device"] = row["mib"] - alone.point["mib"]
            if name in args.strategies.split(","):
                strategy = fd.choose(self.work, self.ranks, self.machine) if name == "auto" else name
                cost = fd.predict(strategy, self.work, self.ranks, machine, balanced=args.layout == "zigzag")
                row |= {"ran": strategy, "predicted_ms": 1e3 * cost.seconds}
                if alone:
                    row["predicted_share"] = alone.ms() / 1e3 / cost.seconds
                if allowed := allowed_memory(strategy, self.work, self.ranks):
                    row["allowed_mib"] = allowed / 2**20
            rows.append(row)
        return [row | {"text": text_of(row)} for row in rows]


def text_of(row):
    name = row["strategy"] + (f": {row['ran']}" if row["strategy"] == "auto" else "")
    text = f"{row['heads']:>5} {row['tokens']:>8} {name:<18}"
    if "error" in row:
        return f"{text} {row['error']}"
    text += f"{row['ms']:10.2f} ms"
    if "predicted_ms" in row:
        text += f" (model {row['predicted_ms']:.2f})"
    text += f" {row['tflops_per_device']:4.0f} TFLOP/s"
    if "share" in row:
        text += f"  share {row['share']:.3f}"
    if "predicted_share" in row:
        text += f" (model {row['predicted_share']:.3f})"
    if "mib" in row:
        text += f"  {row['mib']:.0f} MiB"
    if "mib_beyond_one_device" in row:
        text += f", {row['mib_beyond_one_device']:.0f} beyond one device's"
    if "allowed_mib" in row:
        text += f" (model {row['allowed_mib']:.0f})"
    return text + "".join(f"  {what} {error:.1e}" for what, error in row.get("errors", {}).items())


def main():
    args = options()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for pair in args.heads.split(","):
        if any(int(heads) % ranks for heads in pair.split("/")):
            sys.exit(f"--heads is {pair}, allowed are multiples of the {ranks} ranks")
    machine = fd.measure_link() if args.link else fd.Machine()
    done = []

    def record(rows):
        if rank == 0 and args.json:
            result = {"device": torch.cuda.get_device_name() if on_gpu else "cpu", "machine": machine._asdict(),
                      "last_run": flashtile.last_run(), "points": [*done, *rows]}
            unfinished = args.json.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(result, indent=1) + "\n")
            unfinished.replace(args.json)

    if rank == 0:
        print(f"link {machine.link / 1e9:.0f} GB/s, {1e6 * machine.latency:.0f} us a message", flush=True)
    for pair, seqlen in itertools.product(args.heads.split(","), map(int, args.tokens.split(","))):
        point = Point(seqlen, pair, args, machine, device)
        point.measure(record)
        done += point.rows()
        if rank == 0:
            print(*(row["text"] for row in point.rows()), sep="\n", flush=True)
        del point
        if on_gpu:
            torch.cuda.empty_cache()
    dist.barrier()
    os._exit(0)  # gloo's threads may outlive the interpreter, and then end the process by std::terminate


main()
