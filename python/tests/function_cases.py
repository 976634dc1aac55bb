"""Score and mask functions, and dense attention that evaluates them at every position at once."""

import math

import torch
import torch.nn.functional as F

from conftest import DEVICE
from oracle import assert_close

BATCH, ROWS, KEYS, HEADS, KV_HEADS, D = 2, 37, 53, 4, 2, 16


def problem(dtype=torch.float32):
    return [torch.randn(BATCH, n, h, D).to(dtype) for n, h in ((ROWS, HEADS), (KEYS, KV_HEADS), (KEYS, KV_HEADS))]


def dense(q, k, v, score=None, mask=None, causal=False, bias=None, sinks=None, keep=None, dropout_p=0.0, softcap=0.0,
          first=(0, 0)):
    """(out, lse). score and mask are called once, with every position at once. first: that of the sequence, and of the
    query in it."""
    group = q.shape[2] // k.shape[2]
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k).to(wide) / math.sqrt(q.shape[-1])
    b, h, i, j = torch.meshgrid(*map(torch.arange, s.shape), indexing="ij")
    offset = s.shape[3] - s.shape[2]
    b, at = b + first[0], i + first[1]
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias.to(wide)
    if score is not None:
        s = score(s, b, h, at, j).to(wide)
    seen = torch.ones_like(s, dtype=torch.bool) if mask is None else mask(b, h, at, j)
    if causal:
        seen = seen & (j <= i + offset)
    seen = seen & (s > -1e30)
    s = torch.where(seen, s, -1e300 if wide is torch.float64 else -1e38)
    if sinks is not None:
        s = torch.cat((s, sinks.to(wide)[:, None, None].expand(*s.shape[:3], 1)), -1)
        seen = F.pad(seen, (0, 1), value=True)
    some = seen.any(-1)
    lse = torch.where(some, s.logsumexp(-1), -torch.inf)
    p = torch.where(seen, s.softmax(-1), 0.0)[..., :k.shape[1]]
    if keep is not None:
        p = torch.where(keep, p / (1 - round(dropout_p * 65536) / 65536), 0.0)
    return torch.einsum("bhij,bjhd->bihd", p.to(q.dtype), v), lse


def check(tensors, ours, reference, names=("q", "k", "v"), of_row_sums=0.0):
    """out, lse and gradients of `ours` against those of `reference` in fp64; the error of `reference` in the tensors'
    dtype sets the bound. of_row_sums: how much the sum of a row of dS counts in the gradient of a function's tensor. Such
    sums are made of what the row's D, and so out in its dtype, is off by; in standard attention that cancels."""
    results = []
    for function, wide in ((ours, False), (reference, True), (reference, False)):
        used = [t.double() if wide else t.clone() for t in tensors]
        out, lse = function(*(t.requires_grad_() for t in used))
        if not results:
            dout, dlse = torch.randn_like(out), torch.randn_like(lse)
        grads = torch.autograd.grad((out, torch.where(lse.isfinite(), lse, 0.0)), used,
                                    (dout.to(out.dtype), dlse.to(lse.dtype)))
        results.append((out, lse, *grads))
    out = results[1][0].detach()
    of_d = of_row_sums * torch.finfo(tensors[0].dtype).eps * (dout.double() * out).norm().item()
    whats = ("out", "lse", *(f"d{name}" for name in names))
    for n, (got, wanted, usual, what) in enumerate(zip(*results, whats, strict=True)):
        assert not got.isnan().any(), what
        assert_close(got, wanted, usual, what, of_d if n >= 5 else 0.0)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE)
TABLE = torch.randn(HEADS, 17, generator=torch.Generator().manual_seed(1)).to(DEVICE)
DOCUMENTS = torch.tensor([[0] * 20 + [1] * 13 + [2] * 20, [0] * 5 + [1] * 48], dtype=torch.int32, device=DEVICE)
PREFIX = torch.tensor([11, 30], device=DEVICE)
WIDTH = 6


def swish(s, b, h, i, j):
    return torch.where(s > 0, s * torch.sigmoid(2 * s), 0.25 * torch.exp(s) - s**2 / 8)


# The Python functions of a score and of a mask, and texts with their tensors that say the same.
CASES = {
    "alibi": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs(), None, "s - slopes[h] * abs(i - j)", None,
              {"slopes": SLOPES}),
    "softcap": (lambda s, b, h, i, j: 5 * torch.tanh(s / 5), None, "5.0 * tanh(s / 5)", None, None),
    "table": (lambda s, b, h, i, j: s + TABLE[h, (j - i).clamp(-8, 8) + 8], None,
              "s + table[h, min(max(j - i, -8), 8) + 8]", None, {"table": TABLE}),
    "swish": (swish, None, "s > 0 ? s / (1 + exp(-2 * s)) : 0.25 * exp(s) - s * s / 8", None, None),
    "documents": (None, lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j], None, "d[b, i] == d[b, j]",
                  {"d": DOCUMENTS}),
    "window": (None, lambda b, h, i, j: (i - j).abs() <= 9, None, "abs(i - j) <= 9", None),
    "prefix": (None, lambda b, h, i, j: (j <= i) | (j < PREFIX[b]), None, "j <= i || j < prefix[b]",
               {"prefix": PREFIX}),
    "dilated": (None, lambda b, h, i, j: (i - j) % 3 == 0, None, "(i - j) % 3 == 0", None),
    "neighbourhood": (None, lambda b, h, i, j: ((i // WIDTH - j // WIDTH).abs() <= 2) & (
        (i % WIDTH - j % WIDTH).abs() <= 1), None, "abs(i // 6 - j // 6) <= 2 && abs(i % 6 - j % 6) <= 1", None),
    "of heads": (None, lambda b, h, i, j: torch.where(h % 2 == 0, j <= i, j >= i), None,
                 "h % 2 == 0 ? j <= i : j >= i", None),
    "some rows empty": (None, lambda b, h, i, j: (i % 3 > 0) & (b + h > 0), None, "i % 3 > 0 && b + h > 0", None),
    "hiding score": (lambda s, b, h, i, j: torch.where(j % 4 == 1, -float("inf"), s), None,
                     "j % 4 == 1 ? -inf : s", None, None),
    "both": (lambda s, b, h, i, j: torch.tanh(s) - SLOPES[h] * (i - j).abs(),
             lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j], "tanh(s) - slopes[h] * abs(i - j)",
             "d[b, i] == d[b, j]", {"slopes": SLOPES, "d": DOCUMENTS}),
}


def gradients(function, inputs):
    out = function(*inputs)
    return out, *torch.autograd.grad(out.square().sum(), inputs[:3])
