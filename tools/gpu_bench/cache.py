"""KV caches of random values, and what attention on them gives in fp64."""

import math

import torch

from gpu_bench.check import off_by
from gpu_bench.problem import DTYPES

ROTARY_BASE = 10000.0


def attend(q, k, v):
    """Attention of one head in fp64; the last query sees the last key."""
    s = q @ k.T * q.shape[-1] ** -0.5
    hidden = torch.ones(s.shape, dtype=torch.bool, device=s.device).triu(len(k) - len(q) + 1)
    return torch.softmax(s.masked_fill_(hidden, -math.inf), -1) @ v


class Cache:
    """q, and K and V of all sequences: rows one after the other, or with `page` pages in a random order. All sequences
    have the same first `prefix` keys, in whole pages that every table names."""

    def __init__(self, gpu, dtype, heads, kv_heads, d, dv, lengths, page=0, queries=1, prefix=0, seed=0):
        self.generator = torch.Generator(gpu.device).manual_seed(seed)
        self.device, self.dtype = gpu.device, DTYPES[dtype]
        self.page, self.lengths, self.prefix, self.table = page, lengths, prefix, None
        self.heads, self.kv_heads, self.group, self.dv = heads, kv_heads, heads // kv_heads, dv
        batch, longest = len(lengths), max(lengths)
        self.q = self.normal(batch, queries, heads, d)
        self.used = self.integers(lengths)
        own = [math.ceil((n - prefix) / page) for n in lengths] if page else []
        shared = prefix // page if page else 0
        rows = (shared + sum(own), page) if page else (batch, longest)
        self.k = self.normal(*rows, kv_heads, d)
        self.v = self.k[..., :dv] if d != dv else self.normal(*rows, kv_heads, dv)  # MLA: a view
        if page:
            order = torch.randperm(shared + sum(own), generator=self.generator, device=self.device).int()
            self.table = torch.zeros(batch, shared + max(own), dtype=torch.int32, device=self.device)
            self.table[:, :shared] = order[:shared]
            for b, pages in enumerate(order[shared:].split(own)):
                self.table[b, shared:shared + len(pages)] = pages

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def integers(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def bytes(self):
        """Of all keys and values, a shared one once."""
        columns = self.k.shape[-1] if self.v.data_ptr() == self.k.data_ptr() else self.k.shape[-1] + self.dv
        keys = self.prefix + sum(n - self.prefix for n in self.lengths)
        return keys * self.kv_heads * columns * self.k.element_size()

    def flops(self):
        queries = self.q.shape[1]
        pairs = sum(queries * n - queries * (queries - 1) // 2 for n in self.lengths)
        return 2.0 * self.heads * pairs * (self.q.shape[-1] + self.dv)

    def rows(self, x, b, h):
        """Keys or values of a sequence, as query head h sees them, in fp64."""
        own = x[b] if self.table is None else x[self.table[b].long()].flatten(0, 1)
        return own[:self.lengths[b], h // self.group].double()

    def exact(self, b, h):
        return attend(self.q[b, :, h].double(), self.rows(self.k, b, h), self.rows(self.v, b, h))

    def checked(self):
        """The sequences and heads that are compared."""
        return (0, 0), (len(self.lengths) - 1, self.heads - 1)

    def error(self, out):
        """Relative rms error of some heads."""
        return max(off_by(out[b, :, h].double(), self.exact(b, h)) for b, h in self.checked())


def rotary_tables(gpu, dtype, positions, d):
    """cos and sin of every pair of columns at every position."""
    pairs = torch.arange(0, d, 2, dtype=torch.float64, device=gpu.device)
    angles = torch.arange(positions, device=gpu.device)[:, None] * ROTARY_BASE ** (-pairs / d)
    return angles.cos().to(DTYPES[dtype]), angles.sin().to(DTYPES[dtype])


class GrowingCache(Cache):
    """A cache whose last key of each sequence a call appends, rotated as q is. That key points to where its group's
    queries point, so that a large share of each softmax is its: without it, or with only one of it and q rotated, the
    result is another."""

    POINTEDNESS = 3.0

    def __init__(self, gpu, dtype, rotary, **shape):
        super().__init__(gpu, dtype, **shape)
        self.before = self.used - 1
        self.cos, self.sin = rotary
        towards = self.q.unflatten(2, (self.kv_heads, self.group)).float().mean(3)
        self.new_k = (self.POINTEDNESS * towards).to(self.dtype)
        self.new_v = self.normal(len(self.lengths), 1, self.kv_heads, self.dv)

    def rotated(self, x, b):
        """x at the position of the sequence's last key, in fp64."""
        cos, sin = (table[self.lengths[b] - 1].double() for table in (self.cos, self.sin))
        first, second = x.double().chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)

    def appended(self, b, h):
        h = h // self.group
        return self.rotated(self.new_k[b, 0, h], b), self.new_v[b, 0, h].double()

    def exact(self, b, h):
        k, v = self.rows(self.k, b, h), self.rows(self.v, b, h)
        k[-1], v[-1] = self.appended(b, h)
        return attend(self.rotated(self.q[b, :, h], b), k, v)

    def error(self, out):
        """That of what was written to the cache counts, too."""
        written = [off_by(self.rows(x, b, h)[-1], new) for b, h in self.checked()
                   for x, new in zip((self.k, self.v), self.appended(b, h))]
        return max(super().error(out), *written)
