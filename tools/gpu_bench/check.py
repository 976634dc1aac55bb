"""Checks results before they are timed: whole heads are compared with attention in fp64."""

import math

import torch

# Relative to the rms of the fp64 reference. Rounding to bf16 costs 0.002 to 0.01, a wrong mask, scale or head far more.
TOLERANCE = {"bf16": 0.02, "fp16": 0.004, "fp32": 1e-4}
RESULTS = ("out", "dq", "dk", "dv")


def hidden_keys(problem, n):
    """Which keys each query may not see, (n, n), apart from the boolean mask; None where it sees all."""
    left, right = problem.window
    if problem.causal:
        right = 0
    if left < 0 and right < 0:
        return None
    i = torch.arange(n, dtype=torch.int32, device=problem.q.device)
    ahead = i[None, :] - i[:, None]
    hidden = torch.zeros(n, n, dtype=torch.bool, device=problem.q.device)
    if right >= 0:
        hidden |= ahead > right
    if left >= 0:
        hidden |= ahead < -left
    return hidden


def probabilities(problem, q, k, b, h):
    """P, and softcap's derivative or None."""
    s = (q @ k.T).mul_(problem.scale())
    n = len(s)
    derivative = None
    if problem.softcap:
        s = problem.softcap * torch.tanh(s / problem.softcap)
        derivative = 1 - (s / problem.softcap).square()
    if problem.slopes is not None:
        i = torch.arange(n, dtype=torch.int32, device=s.device)
        s -= problem.slopes[h].double() * (i[None, :] - i[:, None]).abs()
    if problem.bias is not None:
        s += problem.bias[0, h]
    if (hidden := hidden_keys(problem, n)) is not None:
        s.masked_fill_(hidden, -math.inf)
    if problem.mask is not None:
        s.masked_fill_(~problem.mask[0, 0], -math.inf)
    return torch.softmax(s, -1), derivative


def reference(problem, b, h, backward, kept=None):
    """Attention of one head in fp64, and its gradients: those of k and v are summed over the heads that share them.
    `kept`: which probabilities dropout keeps."""
    own = of_one_head(problem, b, h, backward, kept)
    group = problem.heads // problem.kv_heads
    if not backward or group == 1:
        return own
    first = h - h % group
    sharing = [own if other == h else of_one_head(problem, b, other, backward, kept)
               for other in range(first, first + group)]
    return *own[:2], *(sum(each[n] for each in sharing) for n in (2, 3))


def of_one_head(problem, b, h, backward, kept):
    q, k, v = (problem.head(x, b, h).double() for x in (problem.q, problem.k, problem.v))
    p, derivative = probabilities(problem, q, k, b, h)
    factor = kept[b, h] / (1.0 - round(65536 * problem.dropout) / 65536) if kept is not None else 1.0
    out = (p * factor) @ v
    if not backward:
        return (out,)
    dout = problem.head(problem.dout, b, h).double()
    dv = (p * factor).T @ dout
    ds = (dout @ v.T).mul_(factor)
    ds -= (dout * out).sum(-1, keepdim=True)
    ds *= p
    if derivative is not None:
        ds *= derivative
    return out, ds @ k * problem.scale(), ds.T @ q * problem.scale(), dv


def off_by(ours, truth):
    """Relative rms."""
    return ((ours - truth).square().mean().sqrt() / truth.square().mean().sqrt()).item()


def wrong_results(problem, methods, kept=None):
    """{method: what is wrong}. Whole heads are compared with fp64, and all other values, as a test for NaN and size,
    with the first method's."""
    wrong = {}
    first = methods[0]
    backward = all(m.gradients for m in methods)
    last = problem.batch - 1 if kept is None else len(kept) - 1
    for b, h in ((0, 0), (last, problem.heads - 1)):
        exact = reference(problem, b, h, backward, kept)
        for method in methods:
            for name, ours, truth in zip(RESULTS, (method.out, *method.gradients), exact):
                error = off_by(problem.head(ours, b, h).double(), truth)
                if not error <= TOLERANCE[problem.dtype]:
                    wrong[method.name] = f"{name} of batch {b}, head {h} is off by {error:.3g} (relative rms)"
    for method in methods:
        for name, ours, others in zip(RESULTS, (method.out, *method.gradients), (first.out, *first.gradients)):
            error = off_by(ours.float(), others.float())
            if not error <= 2 * TOLERANCE[problem.dtype]:
                wrong.setdefault(method.name, f"{name} differs from {first.name}'s by {error:.3g} (relative rms)")
    return wrong
