"""A small GPT, trained from scratch on this repository's own documentation, with flashtile's attention and with
PyTorch's math attention from the same seed on the same batches: both loss curves on one plot.

    examples/train_gpt.py                                     # some minutes on a CPU: train_gpt.png, train_gpt.json
    examples/train_gpt.py --checkpoint=run --steps=600        # saves as it goes, and goes on where it stopped
    examples/train_gpt.py --device=cuda --dtype=bf16 --width=512 --layers=8 --context=1024 --batch=16

Needs flashtile (pip install .), torch, and matplotlib for the plot. Without dropout the curves coincide; with it
they differ as much as two seeds of one method do, since the two draw different masks.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashtile

ROOT = Path(__file__).resolve().parents[1]


def flash(q, k, v, dropout):
    return flashtile.attention(q, k, v, causal=True, dropout_p=dropout)


def math_attention(q, k, v, dropout):
    with sdpa_kernel(SDPBackend.MATH):
        rows = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(*rows, dropout_p=dropout, is_causal=True).transpose(1, 2)


ATTENTION = {"flashtile": flash, "math": math_attention}


class Block(nn.Module):
    def __init__(self, width, heads, dropout, attention):
        super().__init__()
        self.heads, self.dropout, self.attention = heads, dropout, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                                 nn.Dropout(dropout))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        attended = self.attention(q, k, v, self.dropout if self.training else 0.0)
        x = x + F.dropout(self.out(attended.flatten(-2)), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, characters, a, attention):
        super().__init__()
        self.token, self.position = nn.Embedding(characters, a.width), nn.Embedding(a.context, a.width)
        self.blocks = nn.Sequential(*(Block(a.width, a.heads, a.dropout, attention) for _ in range(a.layers)))
        self.norm = nn.LayerNorm(a.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * a.layers) if last else 0.02)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.token.weight)


def corpus():
    """The repository's documentation, as numbers of characters."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")])
    text = "\n".join(file.read_text() for file in files)
    alphabet = sorted(set(text))
    number = {character: n for n, character in enumerate(alphabet)}
    return torch.tensor([number[character] for character in text]), len(alphabet)


def batch(data, a, step):
    """The batch of a step: the same for every method, and for a run that was resumed."""
    generator = torch.Generator().manual_seed(1_000_003 * a.seed + step)
    starts = torch.randint(len(data) - a.context, (a.batch, 1), generator=generator)
    rows = data[starts + torch.arange(a.context + 1)].to(a.device)
    return rows[:, :-1], rows[:, 1:]


def train(name, data, characters, a):
    """Losses of each step, and the seconds that the steps of this process took."""
    torch.manual_seed(a.seed)
    model = Gpt(characters, a, ATTENTION[name]).to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.rate, betas=(0.9, 0.95), weight_decay=0.1)
    losses, file = [], Path(f"{a.checkpoint}-{name}.pt") if a.checkpoint else None
    random = [torch.get_rng_state, torch.set_rng_state]
    if a.device == "cuda":
        random = [torch.cuda.get_rng_state, torch.cuda.set_rng_state]
    if file and file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        random[1](saved["random"])
        losses = saved["losses"]
        print(f"{name}: goes on after step {len(losses)}")
    start = time.perf_counter()
    for step in range(len(losses), a.steps):
        for group in optimizer.param_groups:
            group["lr"] = a.rate * min(1, (step + 1) / 20)
        ids, target = batch(data, a, step)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = F.cross_entropy(model(ids).float().flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        done = len(losses)
        if done % 20 == 0 or done == a.steps:
            print(f"{name}: step {done:4d}  loss {sum(losses[-20:]) / len(losses[-20:]):.3f}  "
                  f"{time.perf_counter() - start:.0f} s", flush=True)
        if file and (done % 50 == 0 or done == a.steps):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random[0](),
                     "losses": losses}
            torch.save(state, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
    return {"losses": losses, "seconds": time.perf_counter() - start}


def plot(results, a, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for (name, result), style in zip(results.items(), ("-", "--")):
        axes.plot(range(1, a.steps + 1), result["losses"], style, linewidth=1.2, label=f"{name} attention")
    axes.set(xlabel="step", ylabel="cross-entropy (nats a character)", xlim=(1, a.steps),
             title=f"GPT of {a.layers} layers, width {a.width}, context {a.context}, dropout {a.dropout}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--methods", default="flashtile,math", help="flashtile, math or both")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--rate", type=float, default=1e-3, help="AdamW's learning rate")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--checkpoint", help="files that a run saves to and resumes from: CHECKPOINT-METHOD.pt")
    p.add_argument("--output", default="train_gpt", help="OUTPUT.json and OUTPUT.png")
    a = p.parse_args()
    torch.use_deterministic_algorithms(a.device == "cpu")
    data, characters = corpus()
    print(f"{len(data)} characters, {characters} different ones")
    results = {name: train(name, data, characters, a) for name in a.methods.split(",")}
    Path(a.output + ".json").write_text(json.dumps({"arguments": vars(a), **results}, indent=1))
    try:
        plot(results, a, a.output + ".png")
    except ImportError:
        print("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
