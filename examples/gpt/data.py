"""Tokens to train on: random ones, or the bytes of text files."""

from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BYTES = 256


def documentation():
    """This repository's own."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")])


def text(files):
    """Texts as one row of bytes."""
    return torch.frombuffer(bytearray(b"\n".join(Path(file).read_bytes() for file in files)), dtype=torch.uint8)


class Batches:
    """The batch of each step: the same for every method, and for a run that was resumed. Each rank of a data-parallel
    run has its own. Without data its tokens are random."""

    def __init__(self, data, vocabulary, batch, context, device, seed=0, rank=0, ranks=1):
        if data is not None and len(data) <= context:
            raise SystemExit(f"the text has {len(data)} bytes, and the context needs more than {context}")
        self.data, self.vocabulary, self.shape, self.device = data, vocabulary, (batch, context + 1), device
        self.seed, self.rank, self.ranks = seed, rank, ranks

    def __getitem__(self, step):
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + step * self.ranks + self.rank)
        batch, length = self.shape
        if self.data is None:
            rows = torch.randint(self.vocabulary, self.shape, generator=generator)
        else:
            starts = torch.randint(len(self.data) - length + 1, (batch, 1), generator=generator)
            rows = self.data[starts + torch.arange(length)].long()
        rows = rows.to(self.device)
        return rows[:, :-1], rows[:, 1:]
