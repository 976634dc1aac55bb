"""Times flashtile.distributed on the processes that torchrun starts, forward and backward, beside one device on as many
FLOPs as each of them has: the same length with 1 / ranks of the heads.

    torchrun --nproc-per-node=4 tools/bench_ranks.py --json=RESULT.json
    torchrun --nproc-per-node=2 tools/bench_ranks.py --tokens=16384,65536 --strategies=ring,ulysses --heads=32/32

Of each point: milliseconds of the slowest rank (median), the share of `ranks` times one device's rate, what the model
of docs/scale-out.md says of it, and the most memory that a call took on a rank beyond its own rows. --link measures the
group's links first and gives them to the model. --sample=ROWS compares so many random rows of out with attention in
fp64.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import flashtile
from flashtile import distributed as fd

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="16384,65536,262144")
    parser.add_argument("--strategies", default="ring,all_gather,ulysses")
    parser.add_argument("--layout", default="zigzag", choices=("zigzag", "contiguous"))
    parser.add_argument("--heads", default="32/8", help="query heads / key heads")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


class Timer:
    def __init__(self, device, repeats):
        self.device, self.repeats = device, repeats

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def of(self, function):
        """The median time of a call, after one that warms up: on the slowest rank, since all begin together."""
        times = []
        for _ in range(self.repeats + 1):
            dist.barrier()
            start = self.now()
            function()
            times.append(self.now() - start)
        slowest = torch.tensor(times[1:], dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return statistics.median(slowest.tolist())


def leaves(rows, heads, kv_heads, args, device):
    made = [torch.randn(1, rows, h, args.head_dim, device=device).to(DTYPES[args.dtype]) for h in
            (heads, kv_heads, kv_heads, heads)]
    return [t.requires_grad_() for t in made[:3]], made[3]


def forward_and_backward(attention, tensors, dout):
    torch.autograd.grad(attention(*tensors), tensors, dout)


def largest_error(out, tensors, seqlen, args):
    """Of random rows of this rank's out, beside attention in fp64 with all keys."""
    q, k, v = (t.detach() for t in tensors)
    k, v = (fd.unshard(t, layout=args.layout, seqlen=seqlen)[0].double() for t in (k, v))
    places = fd.shard(torch.arange(seqlen, device=q.device), dim=0, layout=args.layout)
    group, worst = q.shape[2] // k.shape[1], 0.0
    for row in torch.randint(len(places), (args.sample,)).tolist():
        seen = int(places[row]) + 1
        s = torch.einsum("hd,jhd->hj", q[0, row].double(), k[:seen].repeat_interleave(group, 1)) / args.head_dim**0.5
        expected = torch.einsum("hj,jhd->hd", s.softmax(-1), v[:seen].repeat_interleave(group, 1))
        worst = max(worst, (out[0, row].double() - expected).abs().max().item())
    return worst


def main():
    args = options()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    heads, kv_heads = map(int, args.heads.split("/"))
    if heads % ranks or kv_heads % ranks:
        sys.exit(f"--heads is {args.heads}, allowed are multiples of the {ranks} ranks")
    machine = fd.measure_link() if args.link else fd.Machine()
    timer, points = Timer(device, args.repeats), []
    for seqlen in map(int, args.tokens.split(",")):
        tensors, dout = leaves(seqlen, heads // ranks, kv_heads // ranks, args, device)
        alone = timer.of(lambda: forward_and_backward(lambda *x: flashtile.attention(*x, causal=True), tensors, dout))
        tensors, dout = leaves(len(fd.shard(torch.empty(seqlen), dim=0, layout=args.layout)), heads, kv_heads, args,
                               device)
        for strategy in args.strategies.split(","):
            def attention(*x):
                return fd.context_parallel_attention(*x, causal=True, strategy=strategy, layout=args.layout,
                                                     seqlen=seqlen)

            seconds = timer.of(lambda: forward_and_backward(attention, tensors, dout))
            work = fd.Work(seqlen, heads, kv_heads, args.head_dim, args.head_dim, 1, tensors[0].element_size())
            one = fd.predict("ring", work, 1, machine).seconds / ranks
            cost = fd.predict(strategy, work, ranks, machine, balanced=args.layout == "zigzag")
            point = {"tokens": seqlen, "ranks": ranks, "strategy": strategy, "layout": args.layout, "heads": args.heads,
                     "head_dim": args.head_dim, "dtype": args.dtype, "ms": 1e3 * seconds, "one_device_ms": 1e3 * alone,
                     "share": alone / seconds, "predicted_share": one / cost.seconds}
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                forward_and_backward(attention, tensors, dout)
                point["mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
            if args.sample:
                point["largest_error"] = largest_error(attention(*tensors).detach(), tensors, seqlen, args)
            points.append(point)
            if rank == 0:
                print(json.dumps({name: round(value, 4) if isinstance(value, float) else value
                                  for name, value in point.items()}), flush=True)
                if args.json:
                    result = {"device": torch.cuda.get_device_name() if on_gpu else "cpu",
                              "machine": machine._asdict(), "last_run": flashtile.last_run(), "points": points}
                    args.json.write_text(json.dumps(result, indent=1) + "\n")
    dist.barrier()
    os._exit(0)  # gloo's threads may outlive the interpreter, and then end the process by std::terminate


main()
