"""Training speed of GPT3-1.3B and 2.7B, Table 1 of the FlashAttention-2 paper: a table and a JSON file.

    python examples/gpt/speed.py --model=1.3b --context=2048 --attention=flash,cudnn,flashtile
    torchrun --nproc-per-node=4 examples/gpt/speed.py --model=2.7b --context=2048
    torchrun --nproc-per-node=4 examples/gpt/speed.py --model=1.3b --context=65536 --context-parallel

Each attention trains the same model from the same seed on the same batches, one after the other, in the order of
--attention; a name may stand there twice. Weights are random, tokens too unless --text names files (their bytes). The
model computes in bf16 beside weights and AdamW's state in fp32. Under torchrun each GPU has --batch sequences of its
own and a share of weights and state (FSDP2); with --context-parallel it has a part of each of the --batch sequences
instead, and attention is flashtile.distributed's.

TFLOP/s are of one GPU, by the paper's formula, 6 seqlen parameters + 12 layers width seqlen^2 for each sequence, and of
the median step after --warmup. An attention that runs out of memory gets a row that says so.
"""

import argparse
import gc
import json
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

import data
from attention import METHODS, chosen, of_ranks
from machine import machine
from model import SIZES, VOCABULARY, Gpt, Size, flops, loss_of
from optimizer import AdamW

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Ranks:
    """The processes that torchrun has started, a GPU each; or this one alone."""

    def __init__(self, device):
        self.count, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.device = torch.device(device, int(os.environ.get("LOCAL_RANK", 0)) if device == "cuda" else None)
        if device == "cuda":
            torch.cuda.set_device(self.device)
        if self.count > 1:
            dist.init_process_group("nccl" if device == "cuda" else "gloo",
                                    device_id=self.device if device == "cuda" else None)
            self.mesh = dist.init_device_mesh(device, (self.count,))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.count > 1:
            dist.destroy_process_group()

    def mean(self, value):
        """Of a number of each rank, and the same bits on each: what all of them decide by."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.item() / self.count

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def shard(model, dtype, a, ranks):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = {"mesh": ranks.mesh, "reshard_after_forward": a.reshard,
               "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)}
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)


def make(name, size, a, ranks):
    """The model and the number of its parameters. fully_shard takes weights in fp32 and computes in a narrower dtype;
    one GPU's model is narrow itself, beside the optimizer's copy in fp32."""
    torch.manual_seed(a.seed)
    with ranks.device:
        model = Gpt(size, a.context, a.vocabulary, of_ranks if a.context_parallel else METHODS[name], a.dropout)
    parameters = sum(p.numel() for p in model.parameters())
    if ranks.count > 1:
        shard(model, DTYPES[a.dtype], a, ranks)
        torch.manual_seed(a.seed + ranks.rank)  # each rank drops its own, and attention what rank 0 draws
        return model, parameters
    return model.to(DTYPES[a.dtype]), parameters


def of_rank(x, dim):
    """This rank's part of a sequence that all ranks have."""
    from flashtile.distributed import shard
    return shard(x, dim=dim)


def train(name, size, batches, a, ranks, deadline):
    """A row of the table."""
    if ranks.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model, parameters = make(name, size, a, ranks)
    optimizer = AdamW(model, a.rate, warmup=20)
    losses, seconds = [], []
    places = of_rank(torch.arange(a.context, device=ranks.device), 0) if a.context_parallel else None
    while len(losses) < a.steps and (len(seconds) <= a.warmup or ranks.mean(time.perf_counter()) < deadline):
        ids, target = batches[len(losses)]
        if a.context_parallel:
            ids, target = of_rank(ids, 1), of_rank(target, 1)
        ranks.synchronize()
        start = time.perf_counter()
        loss = loss_of(model, ids, target, places)
        loss.backward()
        optimizer.step(len(losses))
        losses.append(loss.item())  # waits for the loss only
        ranks.synchronize()
        seconds.append(time.perf_counter() - start)
    step = ranks.mean(statistics.median(seconds[a.warmup:]))
    sequences = a.batch * (1 if a.context_parallel else ranks.count)
    row = {"attention": name, "parameters": parameters, "steps": len(losses), "step_seconds": step,
           "tflops_per_gpu": sequences * flops(size, parameters, a.context) / ranks.count / step / 1e12,
           "tokens_per_second": sequences * a.context / step,
           "losses": [ranks.mean(loss) for loss in losses], "seconds": seconds}
    if ranks.device.type == "cuda":
        row["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def train_or_not(name, *rest):
    try:
        return train(name, *rest)
    except torch.OutOfMemoryError as error:
        return {"attention": name, "error": f"out of memory: {str(error).splitlines()[0]}"}


def shown(row):
    if "error" in row:
        return f"{row['attention']:10} {row['error']}"
    memory = f"{row['peak_memory_gib']:6.1f} GiB" if "peak_memory_gib" in row else ""
    return (f"{row['attention']:10} {row['tflops_per_gpu']:7.3g} TFLOP/s a GPU  {row['tokens_per_second']:9.0f} "
            f"tokens/s  {1e3 * row['step_seconds']:8.1f} ms a step  "
            f"loss {row['losses'][0]:.3f} to {row['losses'][-1]:.3f}  "
            + memory)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=SIZES, default="1.3b")
    p.add_argument("--size", help="LAYERS,WIDTH,HEADS of another model")
    p.add_argument("--vocabulary", type=int, default=VOCABULARY)
    p.add_argument("--context", type=int, default=2048)
    p.add_argument("--batch", type=int, help="sequences of a step on each GPU; 16384 tokens' worth unless given")
    p.add_argument("--attention", default="flashtile", help=f"some of {', '.join(METHODS)}")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
    p.add_argument("--seconds", type=float, default=480, 
                   help="shared out among the attentions; one step after the warm-up is always taken")
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--rate", type=float, default=2e-4, help="AdamW's learning rate")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    p.add_argument("--reshard", action="store_true",
                   help="under torchrun: free gathered weights after forward, for less memory and more traffic")
    p.add_argument("--context-parallel", action="store_true",
                   help="under torchrun: each GPU has a part of every sequence")
    p.add_argument("--text", nargs="+", help="files to train on")
    p.add_argument("--json", default="speed.json")
    a = p.parse_args()
    a.batch = a.batch or max(1, 16384 // a.context)
    if a.steps <= a.warmup:
        p.error(f"--steps={a.steps}: allowed is more than --warmup, {a.warmup}")
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if a.context_parallel and (ranks == 1 or a.attention != "flashtile" or a.context % (2 * ranks)):
        p.error("--context-parallel: allowed for two GPUs and more under torchrun, with --attention=flashtile and a "
                "--context that is a multiple of twice their number")
    if a.device == "cuda" and not torch.cuda.is_available():
        p.error("PyTorch finds no GPU; --device=cpu trains there, a small --size")
    return a


def main():
    a = arguments()
    size = Size(*map(int, a.size.split(","))) if a.size else SIZES[a.model]
    with Ranks(a.device) as ranks:
        names = chosen(a.attention, ranks.device, DTYPES[a.dtype], size.width // size.heads, a.dropout)
        own = (0, 1) if a.context_parallel else (ranks.rank, ranks.count)
        batches = data.Batches(data.text(a.text) if a.text else None, a.vocabulary, a.batch, a.context, ranks.device,
                               a.seed, *own)
        rows = []
        for name in names:
            deadline = ranks.mean(time.perf_counter()) + a.seconds / len(names)
            rows.append(train_or_not(name, size, batches, a, ranks, deadline))
            ranks.say(shown(rows[-1]))
            gc.collect()  # the model, before the next one is made
            if ranks.rank == 0:  # rewritten after every row
                result = {"machine": machine(a.device), "gpus": ranks.count, "size": size._asdict(),
                          "arguments": vars(a), "rows": rows}
                Path(a.json).write_text(json.dumps(result, indent=1) + "\n")
            if a.device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
