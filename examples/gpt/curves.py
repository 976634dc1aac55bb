"""Trains a small GPT from scratch with several attentions, from the same seed on the same batches: their loss curves
lie on each other.

    python examples/gpt/curves.py                            # on this repository's documentation, a minute on a CPU
    python examples/gpt/curves.py --dtype=fp32,bf16 --dropout=0,0.1  # each with each
    python examples/gpt/curves.py --text book.txt --checkpoint=run   # saves as it goes, and goes on where it stopped
    python examples/gpt/curves.py --device=cuda --dtype=bf16 --width=512 --layers=8 --context=1024 --batch=16

Needs flashtile (pip install .) and torch. --json's file is drawn by draw_curves.py. With dropout, standard attention
and flashtile drop the same probabilities; PyTorch's others draw masks of their own, and their curves differ as two
seeds of one method do.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import data
from attention import METHODS, chosen
from machine import machine
from model import Gpt, Size, loss_of
from optimizer import AdamW

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SAVE_EVERY = 50  # steps


class Run:
    """A model in training, which can be saved and resumed."""

    def __init__(self, name, batches, a, dtype, dropout):
        torch.manual_seed(a.seed)
        size = Size(a.layers, a.width, a.heads)
        self.model = Gpt(size, a.context, data.BYTES, METHODS[name], dropout).to(a.device, DTYPES[dtype])
        self.optimizer = AdamW(self.model, a.rate, warmup=20)
        self.batches, self.losses = batches, []
        self.random = torch.cuda if a.device == "cuda" else torch  # whose generator draws dropout
        self.file = Path(f"{a.checkpoint}-{name}-{dtype}-{dropout:g}.pt") if a.checkpoint else None
        if self.file and self.file.exists():
            saved = torch.load(self.file)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load(saved["optimizer"])
            self.random.set_rng_state(saved["random"])
            self.losses = saved["losses"]
            print(f"{name}: goes on after step {len(self.losses)}")

    def step(self):
        done = len(self.losses)
        loss = loss_of(self.model, *self.batches[done])
        loss.backward()
        self.optimizer.step(done)
        self.losses.append(loss.item())

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state(),
                 "random": self.random.get_rng_state(), "losses": self.losses}
        torch.save(state, self.file.with_suffix(".new"))
        self.file.with_suffix(".new").replace(self.file)


def train(name, batches, a, dtype, dropout, deadline):
    run = Run(name, batches, a, dtype, dropout)
    start = time.perf_counter()
    while len(run.losses) < a.steps and time.perf_counter() < deadline:
        run.step()
        done = len(run.losses)
        if done % 20 == 0 or done == a.steps:
            print(f"{name} {dtype} dropout {dropout:g}: step {done:4d}  loss {statistics.mean(run.losses[-20:]):.3f}  "
                  f"{time.perf_counter() - start:.0f} s", flush=True)
        if run.file and (done % SAVE_EVERY == 0 or done == a.steps):
            run.save()
    return {"attention": name, "dtype": dtype, "dropout": dropout, "losses": run.losses,
            "seconds": time.perf_counter() - start}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--attention", default="standard,flashtile", help=f"some of {', '.join(METHODS)}")
    p.add_argument("--dtype", default="fp32", help="fp32, bf16 or both: what the model computes in")
    p.add_argument("--dropout", default="0", help="one probability or several")
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--seconds", type=float, default=1800, help="stop after them, all runs together")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=2)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--rate", type=float, default=2e-3, help="AdamW's learning rate")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--text", nargs="+", help="files to train on instead of the repository's documentation")
    p.add_argument("--checkpoint", help="files that a run saves to and resumes from: CHECKPOINT-ATTENTION-..pt")
    p.add_argument("--json", default="curves.json")
    a = p.parse_args()
    torch.use_deterministic_algorithms(a.device == "cpu")
    deadline = time.perf_counter() + a.seconds
    tokens = data.text(a.text or data.documentation())
    print(f"{len(tokens)} bytes")
    batches = data.Batches(tokens, data.BYTES, a.batch, a.context, a.device, a.seed)
    settings = [(dtype, float(dropout)) for dtype in a.dtype.split(",") for dropout in a.dropout.split(",")]
    for dtype, dropout in settings:  # all are refused before the first is trained
        chosen(a.attention, a.device, DTYPES[dtype], a.width // a.heads, dropout)
    runs = [train(name, batches, a, dtype, dropout, deadline) for dtype, dropout in settings
            for name in a.attention.split(",")]
    result = {"machine": machine(a.device), "arguments": vars(a), "runs": runs}
    Path(a.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
